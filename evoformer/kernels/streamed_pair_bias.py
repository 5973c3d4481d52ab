"""The pair bias in chunks of rows: the normalised pair representation never exists as a whole, only z is kept."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from evoformer.execution import Execution
from evoformer.kernels.kernel import Kernel, compute_dtype
from evoformer.kernels.operator import define
from evoformer.kernels.parts import Norm
from evoformer.kernels.streaming import (
    ChunkedNorm,
    accumulator,
    add_product,
    chunks,
    is_small,
    norm_parameters,
    refusal,
    rows_of,
)


def pair_bias(z: Tensor, norm: Norm, linear: nn.Linear, *, execution: Execution) -> Tensor:
    """`reference.pair_bias`, in chunks of rows."""
    weight = linear.weight.to(compute_dtype(linear.weight))
    return _pair_bias(_Inputs(z, *norm_parameters(norm), weight, rows_of(execution.slice_size, z.shape[2])))


def refuses(z: Tensor, norm: Norm, linear: nn.Linear) -> str | None:
    """The reason why not, or None."""
    reason = refusal(z, norm, linear)
    return "its linear layer has no bias" if reason is None and linear.bias is not None else reason


def suits(z: Tensor, norm: Norm, linear: nn.Linear) -> bool:
    """Whether z is large."""
    return not is_small(z.numel())


KERNEL = Kernel("streamed", pair_bias, refuses, suits)


class _Inputs(NamedTuple):
    z: Tensor  # [B, N_res, N_res, c_z]
    norm_weight: Tensor | None
    norm_bias: Tensor | None
    weight: Tensor  # [N_head, c_z]
    rows: int


def _results(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    z, weight = inputs.z, inputs.weight
    return weight.new_empty(len(z), len(weight), *z.shape[1:3]), z.new_empty(0), z.new_empty(0)


def _forward(inputs: _Inputs) -> tuple[Tensor, ...]:
    z, norm_weight, norm_bias, weight, rows = inputs
    out, *nothing = _results(inputs)
    norm = ChunkedNorm(norm_weight, norm_bias)
    for b, part in chunks(z, rows):
        tokens = norm(z[b, part], weight.dtype)
        out[b, :, part] = torch.mm(weight, tokens.t()).view(out[b, :, part].shape)
    return out, *nothing


def _backward(grad: Tensor, inputs: _Inputs, *_: Tensor) -> tuple[Tensor, ...]:
    z, norm_weight, norm_bias, weight, rows = inputs
    norm, z_grad, weight_grad = ChunkedNorm(norm_weight, norm_bias), torch.empty_like(z), accumulator(weight)
    for b, part in chunks(z, rows):
        tokens = norm(z[b, part], weight.dtype)
        out_grad = grad[b, :, part].reshape(len(weight), -1)
        add_product(weight_grad, out_grad, tokens)
        z_grad[b, part] = norm.backward(torch.mm(out_grad.t(), weight)).view(z[b, part].shape)
    return z_grad, *norm.gradients(z), weight_grad.to(weight.dtype)


def _workspace(inputs: _Inputs) -> tuple[int, int]:
    """A chunk's norm and its gradient."""
    tokens = min(inputs.rows, inputs.z.shape[1]) * inputs.z.shape[2] * inputs.z.shape[3]
    return 2 * tokens, 4 * tokens


_pair_bias = define("pair_bias", _Inputs, _forward, _backward, _results, n_differentiable=4, workspace=_workspace)
