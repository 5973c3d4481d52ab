"""Streamed kernels: on every layer the reference's numbers and gradients, at any sizes, slices, masks and strides.

Chunks are made so small that the tiny inputs here take several.
"""

from collections.abc import Callable

import pytest
import torch
from oracles import redrawn
from running import (
    CASES,
    HIDDEN,
    MASKED,
    REFERENCE,
    STREAMED,
    N_head,
    N_res,
    N_seq,
    assert_same,
    draw,
    draw_mask,
    outcome,
)
from torch import Tensor, nn

from evoformer import Execution, kernels_used, set_execution
from evoformer.kernels import streamed_attention, streaming

LAYER = pytest.mark.parametrize("name", CASES)
DTYPE = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "CHUNK_TOKENS", 2 * N_res)
    monkeypatch.setattr(streamed_attention, "LOGITS", 2 * N_head * N_res**2)


@LAYER
@DTYPE
@pytest.mark.parametrize("recompute", ["none", "layer"])
@pytest.mark.parametrize("slice_size", [None, 4, N_seq, N_res, 50])
def test_any_slices_give_the_references_numbers(
    name: str, dtype: torch.dtype, recompute: str, slice_size: int | None
) -> None:
    """4 is no divisor of an axis, 50 longer than any."""
    case = CASES[name]
    layer, inputs = redrawn(case.build()).to(dtype), draw(case, dtype=dtype)
    masks = draw_mask(case, "cells, a row and a column")
    execution = Execution(kernel="streamed", slice_size=slice_size, recompute=recompute)
    with kernels_used() as used:
        ours = outcome(layer, inputs, masks, execution)
    assert {kernel for _, kernel in used} == {"streamed"}
    assert_same(ours, outcome(layer, inputs, masks, REFERENCE))


@pytest.mark.parametrize("name", MASKED)
@DTYPE
@pytest.mark.parametrize("hidden", HIDDEN)
def test_any_mask_gives_the_references_numbers(name: str, dtype: torch.dtype, hidden: str) -> None:
    case = CASES[name]
    layer, inputs = redrawn(case.build()).to(dtype), draw(case, 2, dtype=dtype)
    masks = draw_mask(case, hidden, 2)
    assert_same(outcome(layer, inputs, masks, STREAMED), outcome(layer, inputs, masks, REFERENCE))


@LAYER
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=["no batch axis", "one batch axis", "two batch axes"])
def test_any_batch_axes_give_the_references_numbers_with_and_without_a_mask(name: str, batch: tuple[int, ...]) -> None:
    case = CASES[name]
    layer, inputs = redrawn(case.build()), draw(case, *batch, dtype=torch.float64)
    for masks in ([], draw_mask(case, "cells, a row and a column", *batch)):
        assert_same(outcome(layer, inputs, masks, STREAMED), outcome(layer, inputs, masks, REFERENCE))


@LAYER
@DTYPE
@pytest.mark.parametrize("sizes", [{"N_seq": 1}, {"N_res": 1}, {"N_seq": 1, "N_res": 1}], ids=str)
@pytest.mark.parametrize("hidden", ["nothing", "everything"])
def test_one_sequence_and_one_residue_are_no_special_case(
    name: str, dtype: torch.dtype, sizes: dict[str, int], hidden: str
) -> None:
    case = CASES[name]
    layer, inputs = redrawn(case.build()).to(dtype), draw(case, 2, **sizes, dtype=dtype)
    masks = draw_mask(case, hidden, 2, **sizes)
    assert_same(outcome(layer, inputs, masks, STREAMED), outcome(layer, inputs, masks, REFERENCE))


def reversed_in_memory(x: Tensor) -> Tensor:
    """The axes lie the other way round."""
    order = tuple(reversed(range(x.ndim)))
    return x.permute(order).contiguous().permute(order)


def every_other(x: Tensor) -> Tensor:
    """With something else between its numbers."""
    return torch.stack([x, torch.ones_like(x)], dim=-1).flatten(-2)[..., ::2]


def stretched(x: Tensor) -> Tensor:
    """One batch element twice, in the same memory."""
    return x[:1].expand(x.shape)


@LAYER
@pytest.mark.parametrize("strange", [reversed_in_memory, every_other, stretched])
def test_inputs_masks_and_the_gradient_of_the_result_may_have_any_strides(
    name: str, strange: Callable[[Tensor], Tensor]
) -> None:
    case = CASES[name]
    layer, masks = redrawn(case.build()), [strange(x) for x in draw_mask(case, "cells", 2)]
    inputs = [strange(x.detach()).requires_grad_() for x in draw(case, 2, dtype=torch.float64)]
    assert not any(x.is_contiguous() for x in (*inputs, *masks))
    assert_same(outcome(layer, inputs, masks, STREAMED), outcome(layer, inputs, masks, REFERENCE))

    def gradients(kernel: Execution) -> dict[str, Tensor]:
        set_execution(layer, kernel)
        update = layer(*inputs, *masks)
        torch.manual_seed(1)
        direction = strange(torch.randn(update.shape, dtype=torch.float64))
        return dict(enumerate(torch.autograd.grad(update, (*inputs, *layer.parameters()), direction)))

    assert_same(gradients(STREAMED), gradients(REFERENCE))


@LAYER
def test_the_update_is_the_same_without_gradients_and_leaves_the_inputs_as_they_are(name: str) -> None:
    case = CASES[name]
    layer, inputs = redrawn(case.build()), [*draw(case, 2, dtype=torch.float64), *draw_mask(case, "cells", 2)]
    before = [x.clone() for x in inputs]
    set_execution(layer, STREAMED)
    recorded = layer(*inputs)
    for without_gradients in (torch.no_grad, torch.inference_mode):
        with without_gradients():
            assert torch.equal(layer(*inputs), recorded)
    recorded.sum().backward()
    assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))


@LAYER
def test_a_graph_may_be_gone_through_twice(name: str) -> None:
    """What was kept, and the gradient that comes in, stay as they are."""
    case = CASES[name]
    layer, inputs = redrawn(case.build()), draw(case, 2, dtype=torch.float64)
    set_execution(layer, STREAMED)
    update, leaves = layer(*inputs, *draw_mask(case, "cells", 2)), (*inputs, *layer.parameters())
    direction = torch.randn(update.shape, dtype=torch.float64)
    before = direction.clone()
    first, second = (torch.autograd.grad(update, leaves, direction, retain_graph=True) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))
    assert torch.equal(direction, before)


@LAYER
def test_an_empty_batch_has_an_empty_update_and_no_gradient(name: str) -> None:
    case = CASES[name]
    layer, inputs, masks = redrawn(case.build()), draw(case, 0, dtype=torch.float64), draw_mask(case, "cells", 0)
    assert all(x.numel() == 0 or (x == 0).all() for x in outcome(layer, inputs, masks, STREAMED).values())


@LAYER
@pytest.mark.parametrize("frozen", ["weights", "inputs", "inputs and biases"])
def test_what_is_frozen_takes_no_gradient_from_the_rest(name: str, frozen: str) -> None:
    case = CASES[name]
    layer, inputs, masks = redrawn(case.build()), draw(case, dtype=torch.float64), draw_mask(case, "cells")
    for parameter_name, parameter in layer.named_parameters():
        parameter.requires_grad_(frozen == "inputs" or (frozen != "weights" and "bias" not in parameter_name))
    for x in inputs:
        x.requires_grad_(frozen == "weights")
    assert_same(outcome(layer, inputs, masks, STREAMED), outcome(layer, inputs, masks, REFERENCE))


@pytest.mark.parametrize("name", [name for name in CASES if "outer product" not in name])
def test_linear_layers_need_no_bias(name: str) -> None:
    case = CASES[name]
    layer, inputs, masks = redrawn(case.build()), draw(case, dtype=torch.float64), draw_mask(case, "cells")
    for part in layer.modules():
        if isinstance(part, nn.Linear):
            part.bias = None
    assert_same(outcome(layer, inputs, masks, STREAMED), outcome(layer, inputs, masks, REFERENCE))
