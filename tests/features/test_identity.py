"""Identity of rows: over the columns where neither has a gap."""

import numpy as np
import pytest

from evoformer.constants import MSA_ALPHABET
from evoformer.features import identity as identity_module
from evoformer.features.identity import pairwise_identity, sequence_weights


def test_identity_is_counted_where_neither_row_has_a_gap() -> None:
    rows = ["ARND", "AR--", "GRN-"]
    msa = np.array([[MSA_ALPHABET.index(letter) for letter in row] for row in rows], np.uint8)
    assert pairwise_identity(msa) == pytest.approx((2 / 2 + 2 / 3 + 1 / 2) / 3)
    assert np.isnan(pairwise_identity(msa[:1]))


@pytest.mark.parametrize("identity", [0.0, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("changed", [0.05, 0.3, 0.9])
def test_weights_count_the_rows_that_are_near_also_among_repeated_ones(changed, identity, monkeypatch) -> None:
    generator = np.random.default_rng(0)
    ancestors = generator.integers(0, 22, (3, 20), dtype=np.uint8)
    msa = ancestors[generator.integers(0, 3, 60)]
    msa = np.where(generator.random(msa.shape) < changed, generator.integers(0, 22, msa.shape), msa).astype(np.uint8)
    msa = msa[generator.integers(0, 60, 80)]
    monkeypatch.setattr(identity_module, "ROWS_AT_ONCE", 17)
    monkeypatch.setattr(identity_module, "PAIRS_AT_ONCE", 7)
    near = [[np.mean(a == b) >= identity - 1e-9 for b in msa] for a in msa]
    np.testing.assert_array_equal(sequence_weights(msa, identity=identity), 1 / np.sum(near, axis=1))
