"""AlphaFold-Multimer's features: DeepMind's numbers, rows shared by loops, and the steps within the featurizer."""

from pathlib import Path

import numpy as np
import pytest
import torch

from evoformer.constants import GAP, MASK
from evoformer.features import multimer
from evoformer.features.alignment import Alignment
from evoformer.features.featurizer import MSAFeaturizer

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = ["plain", "bert", "masked_extra"]
UNUSED = np.random.default_rng(0)
N_clust, N_extra, N_res = 5, 17, 9


@pytest.mark.parametrize("case", CASES)
def test_with_rows_and_masks_given_the_steps_compute_alphafolds_features(case):
    with np.load(GOLDEN / f"features_multimer__{case}.npz") as arrays:
        features = {name.removeprefix("input/"): arrays[name] for name in arrays if name.startswith("input/")}
        expected = {name.removeprefix("output/"): arrays[name] for name in arrays if name.startswith("output/")}
        max_extra = int(str(arrays["meta/num_extra_msa"]))
    features["aatype"] = features["msa"][0] % 21
    for step in multimer.steps(max_extra=max_extra).values():
        features = step(features, UNUSED)
    for name, value in expected.items():
        assert features[name].dtype == value.dtype == np.float32, name
        np.testing.assert_allclose(features[name], value, rtol=0, atol=1e-6, err_msg=name)


@pytest.fixture
def problem():
    generator = np.random.default_rng(7)
    letters = np.array([0, 1, GAP, MASK])  # few, so that ties and every kind of agreement occur
    return {
        "msa": generator.choice(letters, (N_clust, N_res)),
        "extra_msa": generator.choice(letters[:-1], (N_extra, N_res)),
        "msa_mask": (generator.random((N_clust, N_res)) < 0.8).astype(np.float32),
        "extra_msa_mask": (generator.random((N_extra, N_res)) < 0.7).astype(np.float32),
    }


@pytest.mark.parametrize("gap_weight", [0.0, 0.5])
def test_rows_are_split_evenly_among_their_nearest_centres(problem, gap_weight):
    weights = multimer.cluster_weights(**problem, gap_agreement_weight=gap_weight)
    shared = 0
    for n in range(N_extra):
        scores, common = np.zeros(N_clust), np.zeros(N_clust)
        for k in range(N_clust):
            for i in range(N_res):
                if problem["msa_mask"][k, i] and problem["extra_msa_mask"][n, i]:
                    common[k] += 1
                    if problem["msa"][k, i] == problem["extra_msa"][n, i]:
                        scores[k] += {GAP: gap_weight, MASK: 0.0}.get(problem["msa"][k, i], 1.0)
        nearest = scores == scores.max()
        shared += nearest.sum() > 1
        np.testing.assert_allclose(weights[:, n], nearest / nearest.sum() * common, rtol=1e-6)
    assert shared >= 3


def test_a_soft_cluster_is_summarized_column_by_column(problem, monkeypatch):
    monkeypatch.setattr(multimer, "TILE", 4)
    generator = np.random.default_rng(8)
    deletions = generator.integers(0, 3, (N_clust, N_res))
    extra_deletions = generator.integers(0, 4, (N_extra, N_res))
    weights = multimer.cluster_weights(**problem)
    masks = {name: problem[name] for name in ("msa_mask", "extra_msa_mask")}
    profile, deletion_mean = multimer.summarize_soft_clusters(
        problem["msa"], deletions, problem["extra_msa"], extra_deletions, weights, **masks
    )
    for k in range(N_clust):
        total = 1 + weights[k].sum()
        for i in range(N_res):
            shares = np.zeros(23)
            shares[problem["msa"][k, i]] += problem["msa_mask"][k, i]
            deleted = float(deletions[k, i])
            for n in range(N_extra):
                weight = weights[k, n] * problem["extra_msa_mask"][n, i]
                shares[problem["extra_msa"][n, i]] += weight
                deleted += weight * extra_deletions[n, i]
            np.testing.assert_allclose(profile[k, i], shares / total, rtol=1e-5)
            np.testing.assert_allclose(deletion_mean[k, i], deleted / total, rtol=1e-5)


def test_the_featurizer_takes_the_multimers_steps():
    alignment = Alignment(np.random.default_rng(1).integers(0, 22, (30, 11)))
    featurizer = MSAFeaturizer(max_clusters=4, max_extra=6, crop_size=7, declared=multimer.FEATURES)
    featurizer.steps |= multimer.steps(max_extra=6)
    features = featurizer(alignment, seed=2)
    assert features["target_feat"].shape == (7, 21)
    assert torch.equal(features["target_feat"].argmax(-1), features["aatype"])
    assert features["extra_msa_feat"].shape == (6, 7, 25)
    assert features["msa_feat"].shape == (4, 7, 49)


def test_without_extra_rows_a_profile_is_the_centres_own_letter():
    features = MSAFeaturizer(masked_msa_fraction=0.0, declared=multimer.FEATURES)
    features.steps |= multimer.steps(max_extra=3)
    sample = features(Alignment(np.array([[0, 5, 7]])), seed=0)
    assert torch.equal(sample["cluster_profile"][0].argmax(-1), torch.tensor([0, 5, 7]))
    assert torch.equal(sample["cluster_profile"].sum(-1), torch.ones(1, 3))
