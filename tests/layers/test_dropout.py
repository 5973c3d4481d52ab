"""Dropout: one draw shared along an axis, scaled so that the expectation stays, and nothing in evaluation."""

import pytest
import torch
from torch.testing import assert_close

from evoformer import DropoutColumnwise, DropoutRowwise

KINDS = pytest.mark.parametrize(("kind", "shared"), [(DropoutRowwise, -3), (DropoutColumnwise, -2)])
Kind = type[DropoutRowwise] | type[DropoutColumnwise]


@KINDS
def test_one_draw_is_shared_along_the_axis_and_differs_along_the_others(kind: Kind, shared: int) -> None:
    y = kind(0.5)(torch.ones(2, 6, 7, 8))
    one = y.narrow(shared, 0, 1)
    assert torch.equal(y, one.expand_as(y))
    for axis in {-4, -3, -2, -1} - {shared}:
        assert not torch.equal(y, y.narrow(axis, 0, 1).expand_as(y))


@KINDS
def test_the_share_of_zeros_is_p_and_the_rest_is_scaled(kind: Kind, shared: int) -> None:
    p = 0.25
    x = torch.randn(3, 100, 100, 3)
    y = kind(p)(x)
    assert abs((y == 0).double().mean().item() - p) < 0.06  # 900 draws: four standard deviations
    assert_close(y[y != 0], x[y != 0] / (1 - p))


@KINDS
def test_evaluation_and_p_0_return_x(kind: Kind, shared: int) -> None:
    x = torch.randn(2, 3, 4)
    assert torch.equal(kind(0.5).eval()(x), x)
    assert torch.equal(kind(0.0)(x), x)


def test_p_1_drops_everything_and_gradients_follow_the_draw() -> None:
    x = torch.randn(4, 5, 6, requires_grad=True)
    assert torch.equal(DropoutRowwise(1.0)(x), torch.zeros(4, 5, 6))
    y = DropoutRowwise(0.5)(x)
    y.sum().backward()
    assert_close(x.grad, torch.where(y == 0, 0.0, 2.0))


def test_p_is_a_probability() -> None:
    for p in (-0.1, 1.5):
        with pytest.raises(ValueError, match=f"dropout probability is {p}, expected 0 to 1"):
            DropoutRowwise(p)
