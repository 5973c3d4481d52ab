"""Random folds: compact, of the length asked for, with a protein's contacts, and none like another."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from evoformer.simulate.folds import contact_overlap, pair_distances, random_fold


@pytest.mark.parametrize("N_res", [1, 2, 37, 150])
def test_a_fold_has_the_length_asked_for(N_res: int) -> None:
    fold = random_fold(N_res, np.random.default_rng(0))
    assert fold.shape == (N_res, 3)
    assert fold.dtype == np.float32
    assert np.isfinite(fold).all()


def test_a_seed_decides_the_fold() -> None:
    one, again, other = (random_fold(50, np.random.default_rng(seed)) for seed in (4, 4, 5))
    assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_folds_have_the_contacts_of_compact_chains() -> None:
    rng = np.random.default_rng(1)
    per_residue, steps = [], []
    for _ in range(40):
        fold = random_fold(64, rng)
        i, j = np.triu_indices(64, 6)
        per_residue.append((pair_distances(fold)[i, j] < 8).sum() / 64)
        steps.append(np.linalg.norm(np.diff(fold, axis=0), axis=1).mean())
    assert 1 < np.mean(per_residue) < 3  # real chains of this length: 1.3 to 2.5
    assert min(per_residue) > 0.3
    assert 4 < np.mean(steps) < 7  # neighbours' C-betas: 4.5 to 7 Angstrom


def test_folds_of_one_generator_share_few_contacts() -> None:
    rng = np.random.default_rng(2)
    maps = [pair_distances(random_fold(60, rng)) for _ in range(20)]
    overlaps = [contact_overlap(maps[a], maps[b]) for a in range(20) for b in range(a)]
    assert np.median(overlaps) < 0.1


def test_overlap_is_the_share_of_common_contacts() -> None:
    one, other = np.full((9, 9), 20.0), np.full((8, 8), 20.0)
    one[0, 6] = one[0, 7] = one[1, 7] = one[0, 8] = one[2, 3] = 5  # the last two: beyond the other chain, too close
    other[0, 6] = other[2, 3] = 5
    assert contact_overlap(one, other) == contact_overlap(other, one) == 1 / 3
    assert contact_overlap(one, one) == 1
    assert contact_overlap(other[:6, :6], one) == 0


def test_distances_are_euclidean() -> None:
    assert_array_equal(pair_distances(np.array([[0, 0, 0], [3, 4, 0.0]])), [[0, 5], [5, 0]])


def test_no_residues_are_refused() -> None:
    with pytest.raises(ValueError, match="N_res is 0"):
        random_fold(0, np.random.default_rng(0))
