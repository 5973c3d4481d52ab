"""Crops: every residue axis cut alike, the others left alone."""

import numpy as np
import pytest
import torch

from evoformer.features.alignment import Alignment
from evoformer.features.crop import crop, random_crop_start
from evoformer.features.featurizer import MSAFeaturizer
from evoformer.features.schema import FEATURES, FeatureError

N_res = 13


@pytest.fixture
def features():
    alignment = Alignment(np.random.default_rng(0).integers(0, 22, (8, N_res)))
    distances = torch.rand(N_res, N_res)
    distances[4] = float("nan")
    return MSAFeaturizer(max_clusters=5)(alignment, 0, {"distances": distances})


def test_every_residue_axis_is_cut_alike(features):
    cropped = crop(features, 3, 6)
    assert cropped.keys() == features.keys()
    for name, value in features.items():
        expected = value
        for axis, label in enumerate(FEATURES[name].axes):
            if label == "N_res":
                expected = expected.narrow(axis, 3, 6)
        torch.testing.assert_close(cropped[name], expected, rtol=0, atol=0, equal_nan=True)
    assert cropped["distances"].shape == (6, 6)
    assert cropped["distances"][1].isnan().all()
    assert cropped["residue_index"].tolist() == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(("start", "size"), [(-1, 4), (0, 0), (0, 14), (8, 6)])
def test_a_crop_outside_the_chain_is_refused(features, start, size):
    with pytest.raises(ValueError, match=rf"{start} to {start + size} .* 0 to 13"):
        crop(features, start, size)


def test_an_unknown_feature_is_refused(features):
    with pytest.raises(FeatureError, match="'contacts' is not declared"):
        crop({**features, "contacts": torch.zeros(N_res, N_res)}, 0, 2)


def test_starts_are_drawn_alike_and_within_the_chain():
    generator = np.random.default_rng(0)
    counts = np.bincount([random_crop_start(N_res, 10, generator) for _ in range(4000)])
    np.testing.assert_allclose(counts / 4000, [0.25] * 4, atol=0.03)
    assert random_crop_start(5, 10, generator) == 0
