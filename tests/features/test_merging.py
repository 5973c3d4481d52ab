"""Several alignments of one query: AlphaFold's rows, deletions and names in the order given."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from evoformer.features.alignment import Alignment, AlignmentError
from evoformer.features.merging import merge_alignments, pipeline_features, species_identifier
from evoformer.features.reading import read_alignment

GOLDEN = Path(__file__).parents[1] / "golden"
SOURCES = {"a3m": "alignment_a.a3m", "sto": "alignment_b.sto"}
CASES = ["a3m", "sto", "a3m_then_sto", "sto_then_a3m"]


@pytest.fixture(params=CASES)
def case(request):
    """The alignments of a case, their letters, and AlphaFold's arrays."""
    names = request.param.split("_then_")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alignments = [read_alignment(GOLDEN / SOURCES[name]) for name in names]
    letters = [np.load(GOLDEN / f"parse_{name}.npz")["output/sequences"].tolist() for name in names]
    with np.load(GOLDEN / f"msa_features__{request.param}.npz") as arrays:
        expected = {name.removeprefix("output/"): arrays[name] for name in arrays if name.startswith("output/")}
        query = str(arrays["meta/query"])
    return alignments, letters, query, expected


def test_merged_by_letters_the_rows_are_alphafolds(case):
    alignments, letters, query, expected = case
    features = pipeline_features(merge_alignments(alignments, letters), query)
    for name, value in features.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert set(expected) - set(features) == {"msa_hhblits", "aatype_one_hot"}


def test_merged_by_numbers_rows_that_differ_only_in_b_and_d_are_one(case):
    alignments, _, _, expected = case
    features = pipeline_features(merge_alignments(alignments))
    _, first = np.unique(expected["msa"], axis=0, return_index=True)
    kept = np.sort(first)
    assert len(kept) < len(expected["msa"]) or len(alignments) == 1
    for name in ("msa", "deletion_matrix_int", "msa_species_identifiers"):
        np.testing.assert_array_equal(features[name], expected[name][kept], err_msg=name)
    assert features["num_alignments"].tolist() == [len(kept)] * 12
    assert features["aatype"].tolist() == expected["msa"][0].tolist()


def test_alignments_of_different_width_are_refused_with_both_widths():
    with pytest.raises(AlignmentError, match="alignment 1 has 3 columns, alignment 2 of 2 has 4"):
        merge_alignments([Alignment([[0, 1, 2]]), Alignment([[0, 1, 2, 3]])])
    with pytest.raises(AlignmentError, match="0 alignments to merge"):
        merge_alignments([])


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
