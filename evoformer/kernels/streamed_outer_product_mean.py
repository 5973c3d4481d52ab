"""The outer product mean for a few residues i at a time: the products [N_res, N_res, c, c] never exist at once."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from evoformer.execution import Execution, rows_in_slices
from evoformer.kernels.kernel import Kernel
from evoformer.kernels.operator import define
from evoformer.kernels.parts import OuterProductParts
from evoformer.kernels.streaming import (
    ChunkedNorm,
    accumulator,
    add_product,
    compute_dtype,
    is_recorded,
    is_small,
    norm_parameters,
    refusal,
    rows_of,
)


def outer_product_mean(m: Tensor, parts: OuterProductParts, mask: Tensor | None, *, execution: Execution) -> Tensor:
    """`reference.outer_product_mean`, in chunks of rows of the result."""
    dtype = compute_dtype(parts.out.weight)
    return _outer_product_mean(
        _Inputs(
            m.contiguous(),
            *norm_parameters(parts.norm),
            torch.cat([parts.a.weight, parts.b.weight]).to(dtype),
            torch.cat([parts.a.bias, parts.b.bias]).to(dtype),
            parts.out.weight.to(dtype),
            parts.out.bias.to(dtype),
            None if mask is None else mask.to(torch.promote_types(dtype, torch.float32)),
            parts.eps,
            parts.centered,
            rows_of(execution.slice_size, m.shape[2]),
            execution.recompute == "none" and is_recorded(m, *parts[:4]),
        )
    )


def refuses(m: Tensor, parts: OuterProductParts, mask: Tensor | None) -> str | None:
    """The reason why not, or None."""
    reason = refusal(m, *parts[:4])
    if reason is None and m.dtype == torch.float16:
        return "its sums over sequences may not fit float16"
    return reason


def suits(m: Tensor, parts: OuterProductParts, mask: Tensor | None) -> bool:
    """Whether the outer products are large."""
    B, _, N_res, _ = m.shape
    return not is_small(B * N_res * N_res * parts.out.weight.shape[1])


KERNEL = Kernel("streamed", outer_product_mean, refuses, suits)


class _Inputs(NamedTuple):
    m: Tensor  # [B, N_seq, N_res, c_m]
    norm_weight: Tensor | None
    norm_bias: Tensor | None
    weight: Tensor  # of a and b: [2 c, c_m]
    bias: Tensor
    out_weight: Tensor  # [c_z, c * c]
    out_bias: Tensor
    mask: Tensor | None  # [B, N_seq, N_res], 0 or 1
    eps: float
    centered: bool
    rows: int
    keep: bool


def _results(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """The update, and where they are kept a and b side by side, masked: [B, N_seq, N_res, 2 c]."""
    m, weight = inputs.m, inputs.out_weight
    both = weight.new_empty(*m.shape[:3], len(inputs.weight)) if inputs.keep else weight.new_empty(0)
    return weight.new_empty(m.shape[0], m.shape[2], m.shape[2], len(weight)), both, weight.new_empty(0)


def _forward(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    out, kept, nothing = _results(inputs)
    norm = ChunkedNorm(inputs.norm_weight, inputs.norm_bias)
    weight = _swapped(inputs.out_weight).t()
    for i in range(len(inputs.m)):
        both = _columns(inputs, norm, i)
        if inputs.keep:
            kept[i] = both
        a, b = _residues_first(both)
        scale = _scale(inputs, i)
        for part in rows_in_slices(len(a), inputs.rows):
            update = torch.addmm(inputs.out_bias, _outer(a[part], b), weight).view(out[i, part].shape)
            torch.mul(update, scale[part, :, None], out=out[i, part])
    return out, kept, nothing


def _backward(grad: Tensor, inputs: _Inputs, kept: Tensor, _: Tensor) -> tuple[Tensor, ...]:
    m_grad = torch.empty_like(inputs.m)
    norm = ChunkedNorm(inputs.norm_weight, inputs.norm_bias)
    weight, dtype = _swapped(inputs.out_weight), inputs.out_weight.dtype
    grads = [accumulator(t) for t in (inputs.weight, inputs.bias, weight, inputs.out_bias)]
    _, N_seq, N_res, _ = inputs.m.shape
    c = len(inputs.weight) // 2
    for i in range(len(inputs.m)):
        a, b = _residues_first(kept[i] if inputs.keep else _columns(inputs, norm, i))
        a_grad, b_grad, scale = torch.empty_like(a), accumulator(b), _scale(inputs, i)
        for part in rows_in_slices(N_res, inputs.rows):
            sum_grad = (grad[i, part] * scale[part, :, None]).to(dtype).view(-1, len(weight))
            add_product(grads[2], sum_grad.t(), _outer(a[part], b))
            grads[3] += sum_grad.sum(0)
            outer_grad = torch.mm(sum_grad, weight).view(-1, N_res * c, c)  # [i, (j d), c]
            for row, products in zip(a_grad[part], outer_grad, strict=True):
                torch.mm(b, products, out=row)
            left = a[part].transpose(0, 1).reshape(N_seq, -1)  # [N_seq, (i c)]
            add_product(b_grad, left, outer_grad.transpose(0, 1).reshape(N_res * c, -1).t())
        del a, b
        both_grad = torch.cat((a_grad.transpose(0, 1), b_grad.view(N_seq, N_res, c).to(dtype)), -1)
        del a_grad, b_grad
        _finish_backward(inputs, i, both_grad, grads[1])
        for part in rows_in_slices(N_seq, rows_of(None, N_res)):
            tokens = norm(inputs.m[i, part], dtype)
            out_grad = both_grad[part].view(len(tokens), -1)
            add_product(grads[0], out_grad.t(), tokens)
            m_grad[i, part] = norm.backward(torch.mm(out_grad, inputs.weight)).view(m_grad[i, part].shape)
    grads[2] = _swapped(grads[2])
    return m_grad, *norm.gradients(inputs.m), *(t.to(dtype) for t in grads)


_outer_product_mean = define("outer_product_mean", _Inputs, _forward, _backward, _results, n_differentiable=7)


def _columns(inputs: _Inputs, norm: ChunkedNorm, i: int) -> Tensor:
    """a and b side by side, centred and masked as asked: [N_seq, N_res, 2 c]."""
    N_seq, N_res, _ = inputs.m[i].shape
    both = inputs.weight.new_empty(N_seq, N_res, len(inputs.weight))
    for part in rows_in_slices(N_seq, rows_of(None, N_res)):
        tokens = norm(inputs.m[i, part], both.dtype)
        torch.mm(tokens, inputs.weight.t(), out=both[part].view(len(tokens), -1))
    if inputs.centered:
        both -= torch.einsum("sr,src->rc", _mean_weights(inputs, i), both.to(_wide(both)))
    both += inputs.bias
    if inputs.mask is not None:
        both *= inputs.mask[i, ..., None]
    return both


def _finish_backward(inputs: _Inputs, i: int, grad: Tensor, bias_grad: Tensor) -> None:
    """Make the gradient of `_columns` that of the products with the weights, in place, and add to the bias's."""
    if inputs.mask is not None:
        grad *= inputs.mask[i, ..., None]
    total = grad.sum(0, dtype=_wide(grad))  # [N_res, 2 c]
    bias_grad += total.sum(0)
    if inputs.centered:
        grad -= _mean_weights(inputs, i)[..., None] * total


def _mean_weights(inputs: _Inputs, i: int) -> Tensor:
    """With which a column is averaged over its sequences: [N_seq, N_res]."""
    m = inputs.m[i]
    ones = m.new_ones(m.shape[:2], dtype=_wide(m)) if inputs.mask is None else inputs.mask[i]
    return ones / (ones.sum(0) + 1e-10)


def _scale(inputs: _Inputs, i: int) -> Tensor:
    """1 over the number of sequences that two residues share: [N_res, N_res]."""
    m = inputs.m[i]
    mask = m.new_ones(m.shape[:2], dtype=_wide(m)) if inputs.mask is None else inputs.mask[i]
    return 1 / (inputs.eps + mask.t() @ mask)


def _residues_first(both: Tensor) -> tuple[Tensor, Tensor]:
    """a as [N_res, N_seq, c] and b as [N_seq, N_res * c]."""
    a, b = both.chunk(2, -1)
    return a.transpose(0, 1).contiguous(), b.flatten(1)


def _outer(a: Tensor, b: Tensor) -> Tensor:
    """Sums over sequences of the products of a few residues' a with all b: [(i j), (d c)], d the channel of b."""
    rows, _, c = a.shape
    products = a.new_empty(rows, b.shape[1], c)
    for row, out in zip(a, products, strict=True):
        torch.mm(b.t(), row, out=out)
    return products.view(-1, c * c)


def _swapped(weight: Tensor) -> Tensor:
    """Of the weights [c_z, c * c], with the two channels in the other order."""
    c = math.isqrt(weight.shape[1])
    return weight.unflatten(1, (c, c)).transpose(1, 2).flatten(1)


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
