"""Identity of rows: over the columns where neither has a gap."""

import numpy as np
import pytest

from evoformer.constants import MSA_ALPHABET
from evoformer.features.identity import pairwise_identity


def test_identity_is_counted_where_neither_row_has_a_gap() -> None:
    rows = ["ARND", "AR--", "GRN-"]
    msa = np.array([[MSA_ALPHABET.index(letter) for letter in row] for row in rows], np.uint8)
    assert pairwise_identity(msa) == pytest.approx((2 / 2 + 2 / 3 + 1 / 2) / 3)
    assert np.isnan(pairwise_identity(msa[:1]))
