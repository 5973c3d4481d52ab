"""Streamed kernels in low precision: near float32 with the same weights, and finite whatever is masked.

The inputs are long: sums over them that ran in low precision would not be near.
"""

import copy

import pytest
import torch
from oracles import redrawn
from running import CASES, HIDDEN, REFERENCE, STREAMED, draw, draw_mask, errors, outcome
from torch import Tensor, nn

from evoformer import KernelError, MultiHeadAttention, OuterProductMean, kernels_used, set_execution

N_seq, N_res = 200, 12
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2.5e-3}
DTYPES = [
    pytest.param(name, dtype, id=f"{name}, {dtype}")
    for name in CASES
    for dtype in TOLERANCE
    if "outer product" not in name or dtype == torch.bfloat16  # which refuses float16
]


def problem(name: str, dtype: torch.dtype, hidden: str) -> tuple[nn.Module, list[Tensor], list[Tensor]]:
    """A layer and its inputs, all numbers rounded to a precision."""
    case = CASES[name]
    layer = redrawn(case.build(), std=0.3).to(dtype)
    return layer, draw(case, N_seq=N_seq, N_res=N_res, dtype=dtype), draw_mask(case, hidden, N_seq=N_seq, N_res=N_res)


@pytest.mark.parametrize(("name", "dtype"), DTYPES)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_updates_and_gradients_are_near_float32(name: str, dtype: torch.dtype, hidden: str) -> None:
    assert_near_float32(*problem(name, dtype, hidden), dtype)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_the_outer_product_mean_of_few_sequences_is_near_float32(hidden: str) -> None:
    """It multiplies in another order."""
    layer, *_ = problem("outer product mean", torch.bfloat16, hidden)
    case, sizes = CASES["outer product mean"], {"N_seq": 2, "N_res": 200}
    inputs, masks = draw(case, **sizes, dtype=torch.bfloat16), draw_mask(case, hidden, **sizes)
    assert_near_float32(layer, inputs, masks, torch.bfloat16)


def assert_near_float32(layer: nn.Module, inputs: list[Tensor], masks: list[Tensor], dtype: torch.dtype) -> None:
    """As near as the dtype allows, or the reference comes."""
    ours = outcome(layer, inputs, masks, STREAMED)
    usual = outcome(layer, inputs, masks, REFERENCE)
    assert {key: x.dtype for key, x in ours.items()} == {key: x.dtype for key, x in usual.items()}
    assert all(x.isfinite().all() for x in ours.values())
    wide = [x.detach().float().requires_grad_() for x in inputs]
    exact = outcome(copy.deepcopy(layer).float(), wide, masks, REFERENCE)
    of_reference = errors(usual, exact)
    for kind, error in errors(ours, exact).items():
        assert error <= max(TOLERANCE[dtype], 1.5 * of_reference[kind]), (kind, error, of_reference[kind])


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_a_large_bias_is_added_to_the_logits_in_float32(autocast: bool, masked: bool) -> None:
    """In bfloat16, the sum of a logit and 60 would be rounded to a quarter."""
    mha = redrawn(MultiHeadAttention(11, 4, 3, -2, gated=True)).float()
    x, bias = torch.randn(2, 6, 60, 11, requires_grad=True), (60 * torch.randn(2, 3, 60, 60)).requires_grad_()
    masks = [torch.rand(2, 6, 60) > 0.3 if masked else None]
    if not autocast:
        mha.bfloat16()
        x, bias = (t.detach().bfloat16().requires_grad_() for t in (x, bias))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        ours, usual = (outcome(mha, [x, bias], masks, execution) for execution in (STREAMED, REFERENCE))
    exact = outcome(mha.float(), [t.detach().float().requires_grad_() for t in (x, bias)], masks, REFERENCE)
    of_reference = errors(usual, exact)
    for kind, error in errors(ours, exact).items():
        assert error <= 1.5 * of_reference[kind], (kind, error, of_reference[kind])


@pytest.mark.parametrize("autocast", [False, True])
def test_the_outer_product_mean_leaves_float16_to_the_reference(
    autocast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evoformer.kernels.streaming.SMALL", 0)
    layer, inputs, masks = problem("outer product mean", torch.float32 if autocast else torch.float16, "cells")
    with torch.autocast("cpu", dtype=torch.float16, enabled=autocast), kernels_used() as used:
        assert layer(*(100 * x for x in inputs), *masks).isfinite().all()
        assert set(used) == {("outer_product_mean", "reference")}
        set_execution(layer, STREAMED)
        with pytest.raises(KernelError, match="sums over sequences may not fit float16"):
            layer(*inputs, *masks)


@torch.no_grad()
def test_sums_over_sequences_do_not_stop_growing_in_bfloat16() -> None:
    """4096 times 1: bfloat16 cannot count past 256."""
    layer = OuterProductMean(5, 4, 3).to(torch.bfloat16)
    for parameter in layer.parameters():
        parameter.zero_()
    for linear in (layer.linear_1, layer.linear_2):
        linear.bias.fill_(1)
    layer.linear_out.weight.fill_(1)
    set_execution(layer, STREAMED)
    z = layer(torch.randn(4096, 2, 5, dtype=torch.bfloat16), torch.ones(4096, 2))
    assert torch.equal(z, torch.full((2, 2, 4), 9, dtype=torch.bfloat16))
