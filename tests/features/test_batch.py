"""Batches: what padding holds, that real cells are untouched, and what is refused."""

import numpy as np
import pytest
import torch

from evoformer.constants import GAP
from evoformer.features.alignment import Alignment
from evoformer.features.batch import collate
from evoformer.features.featurizer import MSAFeaturizer
from evoformer.features.schema import FEATURES, Feature, FeatureError


def sample(N_seq, N_res, seed, distances=True):
    generator = np.random.default_rng(seed)
    alignment = Alignment(generator.integers(0, 20, (N_seq, N_res)))
    labels = {"distances": torch.rand(N_res, N_res) + 1} if distances else {}
    return MSAFeaturizer(max_clusters=6)(alignment, seed, labels)


@pytest.fixture(scope="module")
def samples():
    return [sample(9, 7, 0), sample(2, 11, 1), sample(17, 5, 2)]


def test_each_sample_stands_unchanged_in_the_batch(samples):
    batch = collate(samples)
    assert batch["msa_feat"].shape == (3, 6, 11, 49)
    assert batch["extra_msa_feat"].shape == (3, 11, 11, 25)
    assert batch["distances"].shape == (3, 11, 11)
    for index, features in enumerate(samples):
        for name, value in features.items():
            real = batch[name][index][tuple(slice(size) for size in value.shape)]
            assert torch.equal(real, value), name
            assert batch[name].dtype == value.dtype


def test_padding_is_masked_gaps_nan_distances_and_zeros(samples):
    batch = collate(samples)
    for index, features in enumerate(samples):
        for name, value in features.items():
            padding = torch.ones(batch[name][index].shape, dtype=torch.bool)
            padding[tuple(slice(size) for size in value.shape)] = False
            padded = batch[name][index][padding]
            if name == "distances":
                assert padded.isnan().all()
            else:
                assert (padded == (GAP if name in ("msa", "true_msa", "extra_msa") else 0)).all(), name
    assert batch["msa_mask"].sum(dim=(1, 2)).tolist() == [6 * 7, 2 * 11, 6 * 5]
    assert batch["extra_msa_mask"].sum(dim=(1, 2)).tolist() == [3 * 7, 0, 11 * 5]
    assert batch["seq_mask"].sum(dim=1).tolist() == [7, 11, 5]


def test_rows_missing_from_the_shallower_sample_are_masked():
    deep, shallow = sample(6, 12, 0), sample(3, 12, 1)
    batch = collate([deep, shallow])
    assert batch["msa_mask"][1, :3].all()
    assert not batch["msa_mask"][1, 3:].any()
    assert batch["extra_msa"].shape == (2, 0, 12)


def test_one_sample_is_a_batch_without_padding(samples):
    batch = collate(samples[:1])
    assert all(torch.equal(batch[name][0], value) for name, value in samples[0].items())


def test_a_feature_of_ones_own_needs_its_axes(samples):
    own = [{**features, "weight": torch.ones(features["aatype"].shape)} for features in samples]
    with pytest.raises(FeatureError, match="'weight' is not declared"):
        collate(own)
    batch = collate(own, {**FEATURES, "weight": Feature(("N_res",), pad=-1)})
    assert batch["weight"][2].tolist() == [1] * 5 + [-1] * 6


def test_samples_with_different_features_are_refused(samples):
    with pytest.raises(FeatureError, match="samples 0 and 1 of the batch differ in their features: distances"):
        collate([samples[0], sample(4, 6, 3, distances=False)])


def test_a_feature_of_another_size_than_its_sample_is_refused(samples):
    with pytest.raises(FeatureError, match="N_res is 6 in feature 'distances', but 7 in 'aatype'"):
        collate([{**samples[0], "distances": torch.zeros(6, 6)}])
    with pytest.raises(FeatureError, match=r"'distances' has shape \(7,\), its declared axes are \('N_res', 'N_res'\)"):
        collate([{**samples[0], "distances": torch.zeros(7)}])
    with pytest.raises(FeatureError, match=r"'target_feat' has shape \(7, 21\)"):
        collate([{**samples[0], "target_feat": torch.zeros(7, 21)}])


def test_an_empty_batch_is_refused():
    with pytest.raises(FeatureError, match="at least one sample"):
        collate([])
