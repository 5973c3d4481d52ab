"""Crops: every residue axis cut alike, the others left alone."""

import numpy as np
import pytest
import torch

from evoformer.features.alignment import Alignment
from evoformer.features.crop import crop, random_crop_start, random_neighbourhood, take_residues
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


def test_residues_of_any_order_are_taken_from_every_axis(features):
    residues = np.array([9, 2, 4, 11])
    taken = take_residues(features, residues)
    assert taken["residue_index"].tolist() == [9, 2, 4, 11]
    for k, i in enumerate(residues):
        assert torch.equal(taken["msa_feat"][:, k], features["msa_feat"][:, i])
        for m, j in enumerate(residues):
            expected = features["distances"][i, j]
            assert taken["distances"][k, m] == expected or (taken["distances"][k, m].isnan() and expected.isnan())
    assert torch.equal(taken["msa_gap_fraction"], features["msa_gap_fraction"])


def test_residues_outside_the_chain_and_none_are_refused(features):
    with pytest.raises(ValueError, match="residues 3 to 13 do not lie within 0 to 13"):
        take_residues(features, np.array([3, 13]))
    with pytest.raises(ValueError, match="at least one residue"):
        take_residues(features, np.array([], np.int64))


def ring():
    """Thirteen residues on a ring, the fifth not resolved: the ends of the chain are neighbours."""
    angle = 2 * np.pi * np.arange(N_res) / N_res
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    distances[4], distances[:, 4] = np.nan, np.nan
    return distances


def test_a_neighbourhood_is_a_resolved_residue_and_those_nearest_to_it():
    expected = {tuple(sorted([(i - 1) % N_res, i, (i + 1) % N_res])) for i in range(N_res) if i not in (3, 4, 5)}
    expected |= {(1, 2, 3), (5, 6, 7)}  # around 3 and 5, whose neighbour is not resolved: the next one instead
    found = [random_neighbourhood(ring(), 3, np.random.default_rng(seed)).tolist() for seed in range(200)]
    assert {tuple(kept) for kept in found} == expected


def test_unresolved_residues_fill_up_a_neighbourhood_at_last():
    kept = random_neighbourhood(ring(), 12, np.random.default_rng(0))
    assert 4 not in kept
    assert random_neighbourhood(ring(), 20, np.random.default_rng(0)).tolist() == list(range(N_res))


def test_without_any_resolved_residue_the_neighbourhood_is_a_stretch():
    starts = set()
    for seed in range(60):
        kept = random_neighbourhood(np.full((6, 6), np.nan), 4, np.random.default_rng(seed))
        assert kept.tolist() == list(range(kept[0], kept[0] + 4))
        starts.add(int(kept[0]))
    assert starts == {0, 1, 2}


def test_the_featurizer_crops_spatially_with_labels_cut_alike():
    alignment = Alignment(np.random.default_rng(0).integers(0, 20, (6, N_res)))
    labels = {"distances": torch.from_numpy(ring())}
    whole = MSAFeaturizer(max_clusters=4)(alignment, 5, labels)
    featurizer = MSAFeaturizer(max_clusters=4, crop_size=4, cropping="spatial")
    torn = 0
    for seed in range(20):
        cropped = featurizer(alignment, seed, labels)
        kept = cropped["residue_index"]
        torn += int(kept[-1] - kept[0] > 3)
        assert torch.equal(cropped["aatype"], whole["aatype"][kept])
        torch.testing.assert_close(
            cropped["distances"], whole["distances"][kept][:, kept], rtol=0, atol=0, equal_nan=True
        )
        again = featurizer(alignment, seed, labels)
        assert torch.equal(again["residue_index"], kept)
    assert torn
    assert MSAFeaturizer(crop_size=N_res, cropping="spatial")(alignment, 0, labels)["aatype"].shape == (N_res,)


@pytest.mark.usefixtures("without_shape_checks")
def test_a_spatial_crop_without_distances_and_an_unknown_crop_are_refused():
    alignment = Alignment(np.zeros((2, N_res), np.uint8))
    with pytest.raises(FeatureError, match="needs the label 'distances'"):
        MSAFeaturizer(crop_size=4, cropping="spatial")(alignment, 0)
    with pytest.raises(ValueError, match="cropping must be one of contiguous, spatial, got 'sphere'"):
        MSAFeaturizer(crop_size=4, cropping="sphere")
