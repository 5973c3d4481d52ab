"""The transition in chunks of positions; the hidden layer is kept or computed again."""

from typing import NamedTuple

import torch
from torch import Tensor

from evoformer.execution import Execution, rows_in_slices
from evoformer.kernels.kernel import Kernel, compute_dtype
from evoformer.kernels.operator import define
from evoformer.kernels.parts import TransitionParts
from evoformer.kernels.streaming import (
    ChunkedLinear,
    ChunkedNorm,
    Scratch,
    bias_of,
    is_recorded,
    is_small,
    norm_parameters,
    refusal,
    rows_of,
)


def transition(x: Tensor, parts: TransitionParts, *, execution: Execution) -> Tensor:
    """`reference.transition`, in chunks of rows."""
    dtype = compute_dtype(parts.linear_1.weight)
    return _transition(
        _Inputs(
            x,
            *norm_parameters(parts.norm),
            parts.linear_1.weight.to(dtype),
            bias_of(parts.linear_1).to(dtype),
            parts.linear_2.weight.to(dtype),
            bias_of(parts.linear_2).to(dtype),
            rows_of(execution.slice_size, x.shape[1]),
            execution.recompute == "none" and is_recorded(x, *parts),
        )
    )


def refuses(x: Tensor, parts: TransitionParts) -> str | None:
    """The reason why not, or None."""
    return refusal(x, *parts)


def suits(x: Tensor, parts: TransitionParts) -> bool:
    """Whether the hidden layer is large."""
    return not is_small(x.shape[0] * x.shape[1] * len(parts.linear_1.weight))


KERNEL = Kernel("streamed", transition, refuses, suits)


class _Inputs(NamedTuple):
    x: Tensor  # [rows, N, c]
    norm_weight: Tensor | None
    norm_bias: Tensor | None
    weight_1: Tensor
    bias_1: Tensor
    weight_2: Tensor
    bias_2: Tensor
    rows: int
    keep: bool


def _results(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """The update, and where it is kept the hidden layer after the ReLU."""
    x, weight = inputs.x, inputs.weight_1
    hidden = weight.new_empty(*x.shape[:-1], len(weight)) if inputs.keep else weight.new_empty(0)
    return torch.empty_like(x, dtype=weight.dtype), hidden, weight.new_empty(0)


def _forward(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    x = inputs.x
    out, kept, nothing = _results(inputs)
    norm = ChunkedNorm(inputs.norm_weight, inputs.norm_bias)
    linear_1 = ChunkedLinear(inputs.weight_1, inputs.bias_1)
    linear_2 = ChunkedLinear(inputs.weight_2, inputs.bias_2)
    scratch = Scratch(kept)
    for part in rows_in_slices(len(x), inputs.rows):
        tokens = norm(x[part], kept.dtype)
        shape = len(tokens), len(inputs.weight_1)
        hidden = kept[part].view(shape) if inputs.keep else scratch("hidden", *shape)
        linear_2(linear_1(tokens, out=hidden).relu_(), out=out[part])
    return out, kept, nothing


def _backward(grad: Tensor, inputs: _Inputs, kept: Tensor, _: Tensor) -> tuple[Tensor, ...]:
    x = inputs.x
    x_grad = torch.empty_like(x)
    norm = ChunkedNorm(inputs.norm_weight, inputs.norm_bias)
    linear_1 = ChunkedLinear(inputs.weight_1, inputs.bias_1)
    linear_2 = ChunkedLinear(inputs.weight_2, inputs.bias_2)
    scratch = Scratch(kept)
    for part in rows_in_slices(len(x), inputs.rows):
        tokens = norm(x[part], kept.dtype)
        shape = len(tokens), len(inputs.weight_1)
        hidden = kept[part].view(shape) if inputs.keep else linear_1(tokens, out=scratch("hidden", *shape)).relu_()
        out_grad = grad[part].reshape(len(tokens), -1)
        linear_2.add_gradients(out_grad, hidden)
        hidden_grad = linear_2.backward(out_grad, out=scratch("hidden_grad", *shape))
        torch.ops.aten.threshold_backward.grad_input(hidden_grad, hidden, 0, grad_input=hidden_grad)
        linear_1.add_gradients(hidden_grad, tokens)
        tokens_grad = linear_1.backward(hidden_grad, out=scratch("tokens_grad", *tokens.shape))
        x_grad[part] = norm.backward(tokens_grad).view(x[part].shape)
    return x_grad, *norm.gradients(x), *linear_1.gradients(), *linear_2.gradients()


def _workspace(inputs: _Inputs) -> tuple[int, int]:
    """A chunk's hidden layer and its gradient."""
    tokens = min(inputs.rows, len(inputs.x)) * inputs.x.shape[1]
    c, hidden = inputs.x.shape[2], len(inputs.weight_1)
    return tokens * (2 * c + hidden), tokens * (4 * c + 3 * hidden)


_transition = define("transition", _Inputs, _forward, _backward, _results, n_differentiable=7, workspace=_workspace)
