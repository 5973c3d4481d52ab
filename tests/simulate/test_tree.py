"""Sampling along a tree: the right distribution, relatives that are alike, gaps where they may be, and one seed."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from evoformer.constants import GAP, UNKNOWN
from evoformer.simulate.folds import random_fold
from evoformer.simulate.potts import N_STATES, Potts, potts_on_fold
from evoformer.simulate.tree import TreeConfig, sample_families

TREE = TreeConfig(fragments=0.0)


@pytest.fixture(scope="module")
def models() -> list[Potts]:
    rng = np.random.default_rng(3)
    return [potts_on_fold(random_fold(N_res, rng), rng) for N_res in (31, 44, 38)]


def mean_identity(msa: np.ndarray) -> float:
    return float((msa[:, None] == msa[None])[np.triu_indices(len(msa), 1)].mean())


def nearest_identity(msa: np.ndarray) -> float:
    identity = (msa[:, None] == msa[None]).mean(axis=-1) - 2 * np.eye(len(msa))
    return float(identity.max(axis=1).mean())


def test_long_histories_give_the_models_distribution() -> None:
    rng = np.random.default_rng(0)
    small = []
    for N_res, pairs in ((2, [(0, 1)]), (3, [(0, 2), (1, 2)])):
        fields = rng.normal(0, 2, (N_res, N_STATES)).astype(np.float32)
        couplings = rng.normal(0, 2, (len(pairs), N_STATES, N_STATES)).astype(np.float32)
        small.append(Potts(fields, np.array(pairs), couplings))
    config = TreeConfig(depth=(40.0, 40.0), growth=(0.12, 0.12), copies=(0.0, 0.0), fragments=0.0)
    sampled = sample_families(small, [4000, 3000], rng, config)
    for model, msa in zip(small, sampled, strict=True):
        states = np.where(msa[1:] == GAP, 20, msa[1:]).astype(int)
        energy = np.zeros([N_STATES] * len(model.fields))
        grid = np.indices(energy.shape)
        for site, field in enumerate(model.fields):
            energy += field[grid[site]]
        for (i, j), coupling in zip(model.pairs, model.couplings, strict=True):
            energy += coupling[grid[i], grid[j]]
        exact = np.exp(energy) / np.exp(energy).sum()
        found = np.zeros_like(exact)
        np.add.at(found, tuple(states.T), 1 / len(states))
        for site in range(len(model.fields)):
            others = tuple(axis for axis in range(exact.ndim) if axis != site)
            assert_allclose(found.sum(axis=others), exact.sum(axis=others), atol=0.04)
        likely = exact > 0.02
        assert likely.sum() > 3
        assert_allclose(found[likely], exact[likely], atol=0.03)


def test_alignments_have_the_sizes_asked_for(models: list[Potts]) -> None:
    sampled = sample_families(models, [9, 1, 14], np.random.default_rng(1))
    assert [msa.shape for msa in sampled] == [(9, 31), (1, 44), (14, 38)]
    assert all(msa.dtype == np.uint8 for msa in sampled)


def test_the_query_has_no_gap_and_nobody_an_unknown(models: list[Potts]) -> None:
    for msa in sample_families(models, [40, 50, 60], np.random.default_rng(1)):
        assert not (msa[0] == GAP).any()
        assert 0 < (msa == GAP).mean() < 0.4
        assert not (msa == UNKNOWN).any()
        assert msa.max() <= GAP


def test_gaps_come_in_runs(models: list[Potts]) -> None:
    gap = np.concatenate([(msa[1:] == GAP).ravel() for msa in sample_families(models, [60] * 3, rng(2), TREE)])
    assert (gap[1:] & gap[:-1]).sum() / gap.sum() > 3 * gap.mean()


def test_the_shorter_the_history_the_more_alike_the_rows(models: list[Potts]) -> None:
    identity = []
    for sweeps in (0.2, 1.0, 4.0):
        config = TreeConfig(depth=(sweeps, sweeps), copies=(0.0, 0.0), fragments=0.0)
        identity.append(np.mean([mean_identity(msa) for msa in sample_families(models, [30] * 3, rng(5), config)]))
    assert identity[0] > identity[1] + 0.1 > identity[2] + 0.2


def test_late_copies_have_a_close_relative(models: list[Potts]) -> None:
    few, many = (
        np.mean([nearest_identity(msa) for msa in sample_families(models, [40] * 3, rng(6), config)])
        for config in (TreeConfig(copies=(0.0, 0.0), fragments=0.0), TreeConfig(copies=(0.5, 0.5), fragments=0.0))
    )
    assert many > few + 0.1


def test_rows_descend_from_one_another_and_not_only_from_the_root(models: list[Potts]) -> None:
    config = TreeConfig(depth=(4.0, 4.0), growth=(1.0, 1.0), copies=(0.0, 0.0), fragments=0.0)
    for msa in sample_families(models, [40] * 3, rng(7), config):
        assert nearest_identity(msa) > mean_identity(msa) + 0.15


def test_fragments_cover_a_stretch_of_the_query(models: list[Potts]) -> None:
    config = TreeConfig(depth=(0.0, 0.0), fragments=1.0, coverage=(0.5, 0.5))
    for msa in sample_families(models, [20] * 3, rng(8), config):
        present = msa[1:] != GAP
        assert_array_equal(present.sum(axis=1), round(msa.shape[1] / 2))
        assert ((np.diff(present.astype(int), axis=1) != 0).sum(axis=1) <= 2).all()
        assert (msa[0] != GAP).all()


def test_a_seed_decides_the_rows(models: list[Potts]) -> None:
    one, again, other = (sample_families(models, [20] * 3, rng(seed)) for seed in (9, 9, 10))
    for a, b, c in zip(one, again, other, strict=True):
        assert_array_equal(a, b)
        assert not np.array_equal(a, c)


def test_models_and_sizes_must_match(models: list[Potts]) -> None:
    with pytest.raises(ValueError, match="3 models, but 2 numbers"):
        sample_families(models, [4, 4], rng(0))


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)
