"""Clusters: the nearest centre by counting letters one by one, and the shares of letters in every cluster."""

import tracemalloc

import numpy as np
import pytest

from evoformer.constants import GAP, MASK, UNKNOWN
from evoformer.features import clustering
from evoformer.features.clustering import assign_to_clusters, summarize_clusters

N_clust, N_extra, N_res = 5, 23, 9


@pytest.fixture
def problem():
    generator = np.random.default_rng(3)
    letters = np.array([0, 1, 2, UNKNOWN, GAP, MASK])  # few, so that ties and every kind of agreement occur
    return {
        "msa": generator.choice(letters, (N_clust, N_res)),
        "extra_msa": generator.choice(letters[:-1], (N_extra, N_res)),
        "msa_mask": (generator.random((N_clust, N_res)) < 0.8).astype(np.float32),
        "extra_msa_mask": (generator.random((N_extra, N_res)) < 0.7).astype(np.float32),
    }


def nearest_centre(msa, extra_msa, msa_mask, extra_msa_mask, gap_agreement_weight):
    assignment = []
    for row, row_mask in zip(extra_msa, extra_msa_mask, strict=True):
        best, best_score = 0, -1.0
        for k, (centre, centre_mask) in enumerate(zip(msa, msa_mask, strict=True)):
            score = 0.0
            for i in range(len(row)):
                if row[i] == centre[i] and row[i] != MASK and row_mask[i] and centre_mask[i]:
                    score += gap_agreement_weight if row[i] == GAP else 1
            if score > best_score:
                best, best_score = k, score
        assignment.append(best)
    return assignment


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("tile", [1, 4, 256])
def test_extra_rows_go_to_the_centre_they_share_most_letters_with(problem, weight, tile, monkeypatch):
    monkeypatch.setattr(clustering, "TILE", tile)
    expected = nearest_centre(**problem, gap_agreement_weight=weight)
    assert len(set(expected)) >= 4
    assert assign_to_clusters(**problem, gap_agreement_weight=weight).tolist() == expected


def test_of_equally_near_centres_the_first_wins():
    msa = np.array([[3, 3], [0, 1], [0, 2]])
    assert assign_to_clusters(msa, np.array([[0, 4], [GAP, GAP], [5, 2]])).tolist() == [1, 0, 2]


def test_long_rows_are_counted_without_overflow():
    N_long = 300  # more than a byte holds
    msa = np.zeros((2, N_long), np.uint8)
    msa[0, :100] = 1  # 200 equal letters against 300, which a byte would count as 44
    extra = np.zeros((1, N_long), np.uint8)
    assert assign_to_clusters(msa, extra).tolist() == [1]


@pytest.mark.parametrize("tile", [2, 256])
def test_a_cluster_is_summarized_column_by_column(problem, tile, monkeypatch):
    monkeypatch.setattr(clustering, "TILE", tile)
    generator = np.random.default_rng(4)
    deletions = generator.integers(0, 3, (N_clust, N_res))
    extra_deletions = generator.integers(0, 4, (N_extra, N_res))
    assignment = generator.integers(0, N_clust - 1, N_extra)  # the last centre stays alone
    profile, deletion_mean = summarize_clusters(
        problem["msa"],
        deletions,
        problem["extra_msa"],
        extra_deletions,
        assignment,
        msa_mask=problem["msa_mask"],
        extra_msa_mask=problem["extra_msa_mask"],
    )
    for k in range(N_clust):
        for i in range(N_res):
            cells = 1e-6 + problem["msa_mask"][k, i]
            shares = np.zeros(23)
            shares[problem["msa"][k, i]] = 1
            deleted = float(deletions[k, i])
            for row in range(N_extra):
                if assignment[row] == k and problem["extra_msa_mask"][row, i]:
                    cells += 1
                    shares[problem["extra_msa"][row, i]] += 1
                    deleted += extra_deletions[row, i]
            np.testing.assert_allclose(profile[k, i], shares / cells, rtol=1e-5)
            np.testing.assert_allclose(deletion_mean[k, i], deleted / cells, rtol=1e-5)


def test_without_extra_rows_a_profile_is_the_centres_own_letter():
    msa = np.array([[0, GAP, MASK]])
    nothing = np.zeros((0, 3), np.uint8)
    assignment = assign_to_clusters(msa, nothing)
    assert assignment.shape == (0,)
    profile, deletion_mean = summarize_clusters(msa, np.array([[0.0, 2.0, 0.0]]), nothing, nothing, assignment)
    np.testing.assert_allclose(profile[0], np.eye(23)[[0, GAP, MASK]], atol=2e-6)
    np.testing.assert_allclose(deletion_mean, [[0, 2, 0]], atol=4e-6)


def test_twenty_thousand_rows_take_little_memory():
    generator = np.random.default_rng(0)
    msa = generator.integers(0, 22, (512, 384), np.uint8)
    extra_msa = generator.integers(0, 22, (20_000, 384), np.uint8)
    parents = generator.integers(0, 512, 100)
    extra_msa[:100, :60] = msa[parents, :60]
    extra_deletions = np.zeros(extra_msa.shape, np.int32)
    tracemalloc.start()
    assignment = assign_to_clusters(msa, extra_msa)
    profile, _ = summarize_clusters(msa, np.zeros(msa.shape), extra_msa, extra_deletions, assignment)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.3e9
    np.testing.assert_array_equal(assignment[:100], parents)
    np.testing.assert_allclose(profile.sum(-1), 1, atol=2e-6)
