"""Transitions: position by position, n times as wide inside."""

import pytest
import torch
from oracles import redrawn
from torch.testing import assert_close

from evoformer import MSATransition, PairTransition


@pytest.mark.parametrize("kind", [MSATransition, PairTransition])
def test_positions_are_independent(kind: type[MSATransition] | type[PairTransition]) -> None:
    layer, x = redrawn(kind(6, 3)), torch.randn(4, 5, 6, dtype=torch.float64)
    assert_close(layer(x)[1, 2], layer(x[1, 2]))


@pytest.mark.parametrize("kind", [MSATransition, PairTransition])
def test_is_n_times_as_wide_inside(kind: type[MSATransition] | type[PairTransition]) -> None:
    assert kind(6).linear_1.weight.shape == (24, 6)
    assert kind(6, 3).linear_1.weight.shape == (18, 6)
    assert kind(6, 3).linear_2.weight.shape == (6, 18)
