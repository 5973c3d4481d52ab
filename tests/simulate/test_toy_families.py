"""Toy families: covariation that tells the contacts, folds that no two families share, and an A3M that reads back."""

from io import StringIO

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from evoformer.constants import GAP
from evoformer.contacts.dca import mean_field_dca
from evoformer.contacts.precision import contact_precision
from evoformer.features.reading import read_alignment
from evoformer.simulate.families import MAX_OVERLAP, Split, ToyFamily, a3m_text, make_families
from evoformer.simulate.folds import contact_overlap

SPLITS = {"train": Split(7, (30, 40), (48, 60)), "test": Split(5, (128, 128), (50, 64))}


@pytest.fixture(scope="module")
def families() -> dict[str, list[ToyFamily]]:
    return make_families(SPLITS, seed=1)


def test_splits_have_the_sizes_asked_for(families: dict[str, list[ToyFamily]]) -> None:
    for name, split in SPLITS.items():
        assert len(families[name]) == split.N_family
        for family in families[name]:
            N_seq, N_res = family.msa.shape
            assert split.N_seq[0] <= N_seq <= split.N_seq[1]
            assert split.N_res[0] <= N_res <= split.N_res[1]
            assert family.deletions.shape == family.msa.shape
            assert family.distances.shape == (N_res, N_res)
    assert len({family.msa.shape for family in families["train"]}) > 3


def test_distances_are_symmetric_tenths_of_an_angstrom(families: dict[str, list[ToyFamily]]) -> None:
    distances = families["test"][0].distances
    assert_array_equal(distances, distances.T)
    assert not distances.diagonal().any()
    assert_array_equal(distances, np.round(distances.astype(float), 1).astype(np.float16))


def test_no_two_families_share_a_fold(families: dict[str, list[ToyFamily]]) -> None:
    maps = [family.distances for members in families.values() for family in members]
    overlaps = [contact_overlap(maps[a], maps[b]) for a in range(len(maps)) for b in range(a)]
    assert max(overlaps) <= MAX_OVERLAP + 0.05  # rounding moves a few distances over the cutoff


def test_covariation_tells_contacts_and_profiles_do_not(families: dict[str, list[ToyFamily]]) -> None:
    rng = np.random.default_rng(0)
    found, shuffled, chance = [], [], []
    for family in families["test"]:
        result = contact_precision(mean_field_dca(family.msa), family.distances)
        found.append(result.top[2])
        chance.append(result.chance)
        columns = np.concatenate([family.msa[:1], rng.permuted(family.msa[1:], axis=0)])
        shuffled.append(contact_precision(mean_field_dca(columns), family.distances).top[2])
    assert np.mean(found) > 4 * np.mean(chance)
    assert np.mean(shuffled) < 2.5 * np.mean(chance)


def test_a_seed_decides_the_families(families: dict[str, list[ToyFamily]]) -> None:
    for family, again, other in zip(
        families["test"], make_families(SPLITS, seed=1)["test"], make_families(SPLITS, seed=2)["test"], strict=True
    ):
        assert_array_equal(family.msa, again.msa)
        assert_array_equal(family.deletions, again.deletions)
        assert_array_equal(family.distances, again.distances)
        assert not np.array_equal(family.msa, other.msa)


def test_insertions_are_rare_and_none_is_in_the_query(families: dict[str, list[ToyFamily]]) -> None:
    for family in families["test"]:
        assert not family.deletions[0].any()
        assert not family.deletions[:, 0].any()
    share = np.mean([(family.deletions > 0).mean() for family in families["test"]])
    assert 0.001 < share < 0.05


def test_the_reader_gives_back_what_was_written(families: dict[str, list[ToyFamily]]) -> None:
    family = families["train"][2]
    text = a3m_text(family, "toy", np.random.default_rng(0))
    alignment = read_alignment(StringIO(text), format="a3m")
    assert_array_equal(alignment.msa, family.msa)
    assert_array_equal(alignment.deletions, family.deletions)
    assert alignment.ids[:2] == ["toy_0", "toy_1"]
    assert family.deletions.any()
    assert (family.msa == GAP).any()


def test_folds_too_alike_are_drawn_anew_and_refused_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    overlaps = iter([0.6, 0.4, 0.6, 0.6, 0.6])
    monkeypatch.setattr("evoformer.simulate.families.contact_overlap", lambda one, other: next(overlaps))
    monkeypatch.setattr("evoformer.simulate.families.MAX_DRAWS", 3)
    with pytest.raises(ValueError, match="none of 3 folds of 50 residues differs enough from the 2 drawn before"):
        make_families({"all": Split(3, (2, 2), (50, 50))})
