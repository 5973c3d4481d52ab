"""The outer product mean for a few residues at a time: the products [N_res, N_res, c, c] never exist at once."""

from typing import NamedTuple

import torch
from torch import Tensor

from evoformer.execution import Execution, rows_in_slices
from evoformer.kernels.kernel import Kernel, compute_dtype
from evoformer.kernels.operator import define
from evoformer.kernels.outer_products import ProductsFirst, WeightFirst, cheaper
from evoformer.kernels.parts import OuterProductParts
from evoformer.kernels.streaming import (
    ChunkedNorm,
    accumulator,
    add_product,
    bias_of,
    is_recorded,
    is_small,
    norm_parameters,
    refusal,
    rows_of,
    wide,
)

TILE = 32  # residues at a time


def outer_product_mean(m: Tensor, parts: OuterProductParts, mask: Tensor | None, *, execution: Execution) -> Tensor:
    """`reference.outer_product_mean`, in chunks of rows of the result."""
    dtype = compute_dtype(parts.out.weight)
    return _outer_product_mean(
        _Inputs(
            m.contiguous(),
            *norm_parameters(parts.norm),
            torch.cat([parts.a.weight, parts.b.weight]).to(dtype),
            torch.cat([bias_of(parts.a), bias_of(parts.b)]).to(dtype),
            parts.out.weight.to(dtype),
            bias_of(parts.out).to(dtype),
            None if mask is None else mask.to(wide(dtype)),
            parts.eps,
            parts.centered,
            execution.slice_size or TILE,
            execution.recompute == "none" and is_recorded(m, *parts[:4]),
        )
    )


def refuses(m: Tensor, parts: OuterProductParts, mask: Tensor | None) -> str | None:
    """The reason why not, or None."""
    reason = refusal(m, *parts[:4])
    if reason is None and compute_dtype(parts.out.weight) == torch.float16:
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
    # Under autocast the reference's result has the wide dtype of m, since the counts of sequences have it.
    dtype = torch.promote_types(m.dtype, weight.dtype)
    return weight.new_empty(m.shape[0], m.shape[2], m.shape[2], len(weight), dtype=dtype), both, weight.new_empty(0)


def _forward(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    out, kept, nothing = _results(inputs)
    norm, products = ChunkedNorm(inputs.norm_weight, inputs.norm_bias), _products(inputs)
    for index in range(len(inputs.m)):
        both = _columns(inputs, norm, index)
        if inputs.keep:
            kept[index] = both
        a, b = (products.arranged(columns) for columns in both.chunk(2, -1))
        products.write(a, b, _scale(inputs, index), out[index])
    return out, kept, nothing


def _backward(grad: Tensor, inputs: _Inputs, kept: Tensor, _: Tensor) -> tuple[Tensor, ...]:
    m_grad = torch.empty_like(inputs.m)
    norm, products = ChunkedNorm(inputs.norm_weight, inputs.norm_bias), _products(inputs)
    weight_grad, bias_grad, dtype = accumulator(inputs.weight), accumulator(inputs.bias), inputs.out_weight.dtype
    N_seq, N_res = inputs.m.shape[1:3]
    for index in range(len(inputs.m)):
        both = kept[index] if inputs.keep else _columns(inputs, norm, index)
        a, b = (products.arranged(columns) for columns in both.chunk(2, -1))
        del both
        a_grad, b_grad = accumulator(a), accumulator(b)
        products.add_gradients(grad[index], a, b, _scale(inputs, index), a_grad, b_grad)
        both_grad = torch.cat((products.columns(a_grad), products.columns(b_grad)), -1).to(dtype)
        del a, b, a_grad, b_grad
        _columns_backward(inputs, index, both_grad, bias_grad)
        for part in rows_in_slices(N_seq, rows_of(None, N_res)):
            tokens = norm(inputs.m[index, part], dtype)
            out_grad = both_grad[part].view(len(tokens), -1)
            add_product(weight_grad, out_grad.t(), tokens)
            m_grad[index, part] = norm.backward(torch.mm(out_grad, inputs.weight)).view(m_grad[index, part].shape)
    return (
        m_grad,
        *norm.gradients(inputs.m),
        weight_grad.to(dtype),
        bias_grad.to(dtype),
        *products.gradients(),
    )


def _workspace(inputs: _Inputs) -> tuple[int, int]:
    """The columns in both layouts and their gradients, and a tile's products."""
    _, N_seq, N_res, c_m = inputs.m.shape
    columns = N_seq * N_res * len(inputs.weight)
    tile = min(inputs.rows, N_res) * min(rows_of(None, inputs.rows), N_res) * inputs.out_weight.shape[1]
    chunk = min(rows_of(None, N_res), N_seq) * N_res * c_m
    return (1 if inputs.keep else 2) * columns + tile + 2 * chunk, 3 * columns + 2 * tile + 4 * chunk


_outer_product_mean = define(
    "outer_product_mean", _Inputs, _forward, _backward, _results, n_differentiable=7, workspace=_workspace
)


def _products(inputs: _Inputs) -> ProductsFirst | WeightFirst:
    """The order in which to multiply."""
    _, N_seq, N_res, _ = inputs.m.shape
    order = cheaper(N_seq, N_res, c=len(inputs.weight) // 2, c_z=len(inputs.out_weight))
    return order(inputs.out_weight, inputs.out_bias, inputs.rows)


def _columns(inputs: _Inputs, norm: ChunkedNorm, index: int) -> Tensor:
    """a and b side by side, centred and masked as asked: [N_seq, N_res, 2 c]."""
    N_seq, N_res, _ = inputs.m[index].shape
    both = inputs.weight.new_empty(N_seq, N_res, len(inputs.weight))
    for part in rows_in_slices(N_seq, rows_of(None, N_res)):
        tokens = norm(inputs.m[index, part], both.dtype)
        torch.mm(tokens, inputs.weight.t(), out=both[part].view(len(tokens), -1))
    if inputs.centered:
        both -= torch.einsum("sr,src->rc", _mean_weights(inputs, index), both.to(wide(both.dtype)))
    both += inputs.bias
    if inputs.mask is not None:
        both *= inputs.mask[index, ..., None]
    return both


def _columns_backward(inputs: _Inputs, index: int, grad: Tensor, bias_grad: Tensor) -> None:
    """Make the gradient of `_columns` that of the products with the weights, in place, and add to the bias's."""
    if inputs.mask is not None:
        grad *= inputs.mask[index, ..., None]
    total = grad.sum(0, dtype=wide(grad.dtype))  # [N_res, 2 c]
    bias_grad += total.sum(0)
    if inputs.centered:
        grad -= _mean_weights(inputs, index)[..., None] * total


def _mean_weights(inputs: _Inputs, index: int) -> Tensor:
    """With which a column is averaged over its sequences: [N_seq, N_res]."""
    mask = _mask(inputs, index)
    return mask / (mask.sum(0) + 1e-10)


def _scale(inputs: _Inputs, index: int) -> Tensor:
    """1 over the number of sequences that two residues share: [N_res, N_res]."""
    mask = _mask(inputs, index)
    return 1 / (inputs.eps + mask.t() @ mask)


def _mask(inputs: _Inputs, index: int) -> Tensor:
    """The mask [N_seq, N_res], ones where there is none."""
    m = inputs.m[index]
    return m.new_ones(m.shape[:2], dtype=wide(m.dtype)) if inputs.mask is None else inputs.mask[index]
