"""The two orders of the outer product mean: both give the reference's numbers, and the one of fewer operations runs."""

import pytest
import torch
from oracles import redrawn
from running import CASES, REFERENCE, N_res, assert_same, draw, draw_mask, outcome
from torch.utils.flop_counter import FlopCounterMode

from evoformer import Execution
from evoformer.kernels import streamed_outer_product_mean, streaming
from evoformer.kernels.outer_products import ProductsFirst, WeightFirst, cheaper

ORDERS = [ProductsFirst, WeightFirst]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("recompute", ["none", "layer"])
@pytest.mark.parametrize("slice_size", [None, 4, 50])
@pytest.mark.parametrize("name", [name for name in CASES if "outer product" in name])
def test_either_order_gives_the_references_numbers(
    name: str,
    order: type,
    dtype: torch.dtype,
    recompute: str,
    slice_size: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streaming, "CHUNK_TOKENS", 4 * N_res)
    monkeypatch.setattr(streamed_outer_product_mean, "cheaper", lambda *_, **__: order)
    case = CASES[name]
    layer, inputs = redrawn(case.build()).to(dtype), draw(case, 2, dtype=dtype)
    masks = draw_mask(case, "cells, a row and a column", 2)
    execution = Execution(kernel="streamed", slice_size=slice_size, recompute=recompute)
    assert_same(outcome(layer, inputs, masks, execution), outcome(layer, inputs, masks, REFERENCE))


@pytest.mark.parametrize("N_seq", [1, 3, 9, 30, 100])
@pytest.mark.parametrize("c_z", [4, 13])
def test_the_order_of_fewer_operations_is_taken(N_seq: int, c_z: int) -> None:
    N_res, c = 17, 6
    a, b, scale = torch.randn(N_seq, N_res, c), torch.randn(N_seq, N_res, c), torch.ones(N_res, N_res)
    operations = {}
    for order in ORDERS:
        products = order(torch.randn(c_z, c * c), torch.randn(c_z), N_res)
        with FlopCounterMode(display=False) as counter:
            products.write(products.arranged(a), products.arranged(b), scale, torch.empty(N_res, N_res, c_z))
        operations[order] = counter.get_total_flops()
    assert cheaper(N_seq, N_res, c, c_z) is min(operations, key=operations.__getitem__)
