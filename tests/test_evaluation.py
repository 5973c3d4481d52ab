"""Evaluation: the shuffled control, identity, and the summary over families."""

import numpy as np
import pytest
from test_model import SMALL, random_weights

from evoformer.config import ModelConfig, TrunkConfig
from evoformer.evaluation import score_family, shuffle_columns, summarize
from evoformer.features.alignment import Alignment
from evoformer.features.families import Family
from evoformer.model import ContactModel

N_seq, N_res = 9, 14


@pytest.fixture
def alignment():
    return Alignment(np.random.default_rng(0).integers(0, 4, (N_seq, N_res)).astype(np.uint8))


def test_shuffling_keeps_the_query_and_every_column_and_breaks_the_rows(alignment):
    shuffled = shuffle_columns(alignment, seed=1)
    np.testing.assert_array_equal(shuffled.msa[0], alignment.msa[0])
    np.testing.assert_array_equal(np.sort(shuffled.msa[1:], axis=0), np.sort(alignment.msa[1:], axis=0))
    rows = {tuple(row) for row in alignment.msa[1:].tolist()}
    assert not rows & {tuple(row) for row in shuffled.msa[1:].tolist()}
    np.testing.assert_array_equal(shuffled.msa, shuffle_columns(alignment, seed=1).msa)


def test_a_family_is_scored_at_every_depth_and_beside_its_controls(alignment):
    walk = np.random.default_rng(1).normal(0, 3, (N_res, 3)).cumsum(0)
    distances = np.linalg.norm(walk[:, None] - walk[None], axis=-1).astype(np.float32)
    model = random_weights(ContactModel(ModelConfig(trunk=TrunkConfig(embedder="profile", **SMALL))))
    scores = score_family(model, Family("one", alignment, distances), depths=(1, 4, 7))
    assert list(scores) == [
        "trunk, N = 1", "trunk, N = 4", "trunk, N = 7", "trunk, N = 7, columns shuffled", "mean-field DCA, N = 7",
        "chance",
    ]  # fmt: skip
    i, j = np.triu_indices(N_res, 6)
    assert scores["chance"] == dict.fromkeys((1, 2, 5), pytest.approx((distances[i, j] < 8).mean()))


def test_the_summary_is_mean_and_spread_over_families():
    summary = summarize([{"a": {1: 0.2, 2: 0.5}}, {"a": {1: 0.4, 2: 0.5}}])
    assert summary["a"].mean == {1: pytest.approx(0.3), 2: 0.5}
    assert summary["a"].spread == {1: pytest.approx(0.1), 2: 0.0}
    assert summary["a"].N_family == 2
