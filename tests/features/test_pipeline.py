"""Several alignments of one query: AlphaFold's rows, deletions and names in the order given."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from evoformer.features.alignment import Alignment
from evoformer.features.pipeline import pipeline_features, species_identifier
from evoformer.features.reading import read_alignment

GOLDEN = Path(__file__).parents[1] / "golden"
SOURCES = {"a3m": "alignment_a.a3m", "sto": "alignment_b.sto"}
CASES = ["a3m", "sto", "a3m_then_sto", "sto_then_a3m"]


@pytest.fixture(params=CASES)
def case(request):
    """The alignments of a case, and AlphaFold's arrays."""
    names = request.param.split("_then_")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alignments = [read_alignment(GOLDEN / SOURCES[name]) for name in names]
    with np.load(GOLDEN / f"msa_features__{request.param}.npz") as arrays:
        expected = {name.removeprefix("output/"): arrays[name] for name in arrays if name.startswith("output/")}
    return alignments, expected


def test_rows_and_aatype_are_alphafolds(case):
    alignments, expected = case
    features = pipeline_features(alignments)
    for name, value in features.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert set(expected) - set(features) == {"msa_hhblits", "aatype_one_hot"}


def test_alignments_of_different_queries_are_refused_with_both_lengths():
    with pytest.raises(ValueError, match=r"of 3 and .* of 4 residues"):
        pipeline_features([Alignment([[0, 1, 2]]), Alignment([[0, 1, 2, 3]])])
    with pytest.raises(ValueError, match="0 alignments given"):
        pipeline_features([])


@pytest.mark.parametrize(
    ("name", "species"),
    [
        ("tr|A0A146SKV9|A0A146SKV9_FUNHE", "FUNHE"),
        ("sp|P0C2L1|A3X1_LOXLA/10-20", "LOXLA"),
        ("sp|P0C2L1_2|A3X1_LOXLA_7", "LOXLA"),
        ("UniRef100_X1/2-13", ""),
        ("tr|SHORT|A_HUMAN", ""),
        ("", ""),
    ],
)
def test_the_species_is_in_uniprots_names(name, species):
    assert species_identifier(name) == species
