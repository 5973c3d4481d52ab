"""The outer product mean for a few residues i at a time: the products [N_res, N_res, c, c] never exist at once."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from evoformer.execution import Execution, rows_in_slices
from evoformer.kernels.kernel import Kernel, compute_dtype
from evoformer.kernels.operator import define
from evoformer.kernels.parts import OuterProductParts
from evoformer.kernels.streaming import (
    ChunkedLinear,
    ChunkedNorm,
    Scratch,
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

TILE = 32  # residues i of a tile


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
    norm = ChunkedNorm(inputs.norm_weight, inputs.norm_bias)
    project, scratch = ChunkedLinear(_swapped(inputs.out_weight), inputs.out_bias), Scratch(inputs.out_weight)
    for index in range(len(inputs.m)):
        both = _columns(inputs, norm, index)
        if inputs.keep:
            kept[index] = both
        a, b = _residues_first(both)
        scale = _scale(inputs, index)
        for i, j in _tiles(inputs):
            update = project(_products(a[i], b[j], scratch), out=scratch("update", *out[index, i, j].shape))
            torch.mul(update.view(out[index, i, j].shape), scale[i, j, None], out=out[index, i, j])
    return out, kept, nothing


def _backward(grad: Tensor, inputs: _Inputs, kept: Tensor, _: Tensor) -> tuple[Tensor, ...]:
    m_grad = torch.empty_like(inputs.m)
    norm = ChunkedNorm(inputs.norm_weight, inputs.norm_bias)
    project, scratch = ChunkedLinear(_swapped(inputs.out_weight), inputs.out_bias), Scratch(inputs.out_weight)
    weight_grad, bias_grad, dtype = accumulator(inputs.weight), accumulator(inputs.bias), inputs.out_weight.dtype
    N_seq, N_res = inputs.m.shape[1:3]
    for index in range(len(inputs.m)):
        a, b = _residues_first(kept[index] if inputs.keep else _columns(inputs, norm, index))
        a_grad, b_grad, scale = accumulator(a), accumulator(b), _scale(inputs, index)
        for i, j in _tiles(inputs):
            sum_grad = (grad[index, i, j] * scale[i, j, None]).to(dtype).flatten(0, 1)
            tile = b[j].flatten(0, 1)  # [(j d), N_seq]
            products = _products(a[i], b[j], scratch)
            project.add_gradients(sum_grad, products)
            products_grad = project.backward(sum_grad, out=products)  # in the products' place
            products_grad = products_grad.view(len(a[i]), len(tile), -1)  # [i, (j d), c]
            add_product(a_grad[i], products_grad.transpose(1, 2), tile.expand(len(products_grad), -1, -1))
            _add_sum(b_grad[j].view(tile.shape), products_grad, a[i], scratch)
        both_grad = torch.cat((a_grad.permute(2, 0, 1), b_grad.permute(2, 0, 1)), -1).to(dtype)
        del a, b, a_grad, b_grad
        _columns_backward(inputs, index, both_grad, bias_grad)
        for part in rows_in_slices(N_seq, rows_of(None, N_res)):
            tokens = norm(inputs.m[index, part], dtype)
            out_grad = both_grad[part].view(len(tokens), -1)
            add_product(weight_grad, out_grad.t(), tokens)
            m_grad[index, part] = norm.backward(torch.mm(out_grad, inputs.weight)).view(m_grad[index, part].shape)
    out_weight_grad, out_bias_grad = project.gradients()
    return (
        m_grad,
        *norm.gradients(inputs.m),
        weight_grad.to(dtype),
        bias_grad.to(dtype),
        _swapped(out_weight_grad),
        out_bias_grad,
    )


def _workspace(inputs: _Inputs) -> tuple[int, int]:
    """The columns in both orders and their gradients, and a tile's products."""
    _, N_seq, N_res, c_m = inputs.m.shape
    columns = N_seq * N_res * len(inputs.weight)
    tile = min(inputs.rows, N_res) * min(rows_of(None, inputs.rows), N_res) * inputs.out_weight.shape[1]
    chunk = min(rows_of(None, N_res), N_seq) * N_res * c_m
    return (1 if inputs.keep else 2) * columns + tile + 2 * chunk, 3 * columns + 2 * tile + 4 * chunk


_outer_product_mean = define(
    "outer_product_mean", _Inputs, _forward, _backward, _results, n_differentiable=7, workspace=_workspace
)


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


def _tiles(inputs: _Inputs) -> Iterator[tuple[slice, slice]]:
    """Residues i and j: few pairs at a time, and so few j that their columns stay in the cache for all i."""
    N_res = inputs.m.shape[2]
    for i in rows_in_slices(N_res, inputs.rows):
        for j in rows_in_slices(N_res, rows_of(None, inputs.rows)):
            yield i, j


def _residues_first(both: Tensor) -> tuple[Tensor, Tensor]:
    """a and b, [N_res, c, N_seq] each."""
    a, b = both.permute(1, 2, 0).chunk(2, 1)
    return a.contiguous(), b.contiguous()


def _products(a: Tensor, b: Tensor, scratch: Scratch) -> Tensor:
    """Sums over sequences of the products of a [i, c, N_seq] and b [j, d, N_seq]: [(i j), (d c)]."""
    tile = b.flatten(0, 1).expand(len(a), -1, -1)
    products = torch.bmm(tile, a.transpose(1, 2), out=scratch("products", *tile.shape[:2], a.shape[1]))
    return products.view(len(a) * len(b), -1)


def _add_sum(total: Tensor, a: Tensor, b: Tensor, scratch: Scratch) -> None:
    """Add the sum over i of a_i b_i to a matrix."""
    if total.dtype == a.dtype:
        for a_i, b_i in zip(a, b, strict=True):
            total.addmm_(a_i, b_i)
    else:  # each addition to a wider matrix is a pass over all of it
        total += scratch.copy("a", a.transpose(0, 1)).flatten(1) @ b.flatten(0, 1)


def _swapped(weight: Tensor) -> Tensor:
    """Of the weights [c_z, c * c], with the two channels in the other order."""
    c = math.isqrt(weight.shape[1])
    return weight.unflatten(1, (c, c)).transpose(1, 2).flatten(1)
