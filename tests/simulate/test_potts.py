"""Potts models of folds: couplings sit on contacts, fields follow the structure, and residues have their tables."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from evoformer.constants import RESIDUES
from evoformer.simulate import residues
from evoformer.simulate.folds import pair_distances, random_fold
from evoformer.simulate.potts import GAP_STATE, Potts, PottsConfig, potts_on_fold, secondary_structure

N_res = 57


@pytest.fixture(scope="module")
def fold() -> np.ndarray:
    return random_fold(N_res, np.random.default_rng(8))


@pytest.fixture(scope="module")
def model(fold: np.ndarray) -> Potts:
    return potts_on_fold(fold, np.random.default_rng(9))


def test_couplings_sit_on_contacts(fold: np.ndarray, model: Potts) -> None:
    i, j = model.pairs.T
    strong = np.abs(model.couplings[:, :GAP_STATE, :GAP_STATE]).max(axis=(1, 2)) > 0
    distance = pair_distances(fold)[i, j]
    assert strong.sum() > N_res
    assert (distance[strong] < 9.5).mean() > 0.95
    assert (distance[strong] > 10).any()  # the strays
    contacts = (pair_distances(fold)[np.triu_indices(N_res, 2)] < 7).sum()
    assert 0.6 < (distance[strong] < 7).sum() / contacts < 0.95  # a fifth is silent


def test_no_strays_if_none_are_asked_for(fold: np.ndarray) -> None:
    model = potts_on_fold(fold, np.random.default_rng(9), PottsConfig(stray=0.0, gap_extend=0.0))
    strong = np.abs(model.couplings).max(axis=(1, 2)) > 0
    assert pair_distances(fold)[tuple(model.pairs[strong].T)].max() < 10


def test_couplings_say_nothing_on_single_sites(model: Potts) -> None:
    residue_part = model.couplings[:, :GAP_STATE, :GAP_STATE]
    assert_allclose(residue_part @ residues.BACKGROUND, 0, atol=1e-4)
    assert_allclose(residues.BACKGROUND @ residue_part, 0, atol=1e-4)


def test_a_gap_invites_one_at_the_next_site_only(model: Potts) -> None:
    i, j = model.pairs.T
    gap_pairs = model.couplings[:, GAP_STATE, GAP_STATE] != 0
    assert_allclose(j[gap_pairs] - i[gap_pairs], 1)
    assert gap_pairs.sum() == N_res - 1
    assert not model.couplings[:, GAP_STATE, :GAP_STATE].any()


def test_inner_sites_prefer_hydrophobic_residues(fold: np.ndarray) -> None:
    model = potts_on_fold(fold, np.random.default_rng(9), PottsConfig(site=0.0))
    crowd = (pair_distances(fold) < 10).sum(axis=1)
    preference = model.fields[:, RESIDUES.index("L")] - model.fields[:, RESIDUES.index("K")]
    assert np.corrcoef(crowd, preference)[0, 1] > 0.8
    assert_allclose(np.exp(model.fields[:, :GAP_STATE]).sum(axis=1), 1, rtol=1e-5)


def test_physics_is_alike_over_families_and_noise_is_not(fold: np.ndarray) -> None:
    def mean_coupling(seed: int, first: str, second: str) -> float:
        model = potts_on_fold(fold, np.random.default_rng(seed))
        contacts = np.abs(model.couplings).max(axis=(1, 2)) > 0
        return float(model.couplings[contacts, RESIDUES.index(first), RESIDUES.index(second)].mean())

    for seed in (1, 2, 3):
        assert mean_coupling(seed, "K", "E") > 0.1 > -0.1 > mean_coupling(seed, "K", "R")
        assert mean_coupling(seed, "W", "W") < 0 < mean_coupling(seed, "W", "G")


def test_a_helix_and_a_strand_are_told_apart() -> None:
    turn = np.deg2rad(100) * np.arange(12)
    helix = np.stack([3.3 * np.cos(turn), 3.3 * np.sin(turn), 1.5 * np.arange(12)], axis=1)
    strand = np.stack([np.zeros(8), 2.3 * (-1.0) ** np.arange(8), 3.3 * np.arange(8)], axis=1)
    assert [kind.all() for kind in secondary_structure(pair_distances(helix))] == [True, False]
    assert [kind.all() for kind in secondary_structure(pair_distances(strand))] == [False, True]


def test_a_given_structure_of_any_length_has_a_model() -> None:
    for length in (1, 2, 5):
        model = potts_on_fold(5.0 * np.eye(length, 3), np.random.default_rng(0))
        assert model.fields.shape == (length, 21)
        assert np.isfinite(model.fields).all()


def test_residue_properties_are_in_the_order_of_the_alphabet() -> None:
    assert residues.BACKGROUND.sum() == pytest.approx(1)
    assert RESIDUES[residues.HYDROPATHY.argmin()] == "R"
    assert RESIDUES[residues.VOLUME.argmax()] == "W"
    assert {RESIDUES[k] for k in np.flatnonzero(residues.CHARGE < -1)} == {"D", "E"}
    assert_allclose(residues.ALIKE @ residues.ALIKE, residues._similarity, atol=1e-9)
