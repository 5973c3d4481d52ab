"""Global attention in chunks of rows, without keys, values or a copy of the output for each position.

With one query a row, its key projection folds into the query, the value projection follows the weighted mean of x, and
the output, the same at every position, folds into the weights that the gate meets.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from evoformer.execution import Execution
from evoformer.kernels.kernel import Kernel, compute_dtype
from evoformer.kernels.operator import define
from evoformer.kernels.parts import AttentionParts
from evoformer.kernels.streaming import (
    ABSORBING,
    ChunkedLinear,
    ChunkedNorm,
    accumulator,
    add_product,
    bias_of,
    chunks,
    is_small,
    norm_parameters,
    refusal,
    rows_of,
    wide,
)


def global_attention(
    x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None, *, execution: Execution
) -> Tensor:
    """`reference.global_attention`, in chunks of rows."""
    assert parts.g is not None
    dtype = compute_dtype(parts.o.weight)
    scale = (parts.o.weight.shape[1] // parts.N_head) ** -0.5
    return _global_attention(
        _Inputs(
            x,
            *norm_parameters(parts.norm),
            (parts.q.weight * scale).to(dtype),
            parts.k.weight.to(dtype),
            parts.v.weight.to(dtype),
            parts.g.weight.to(dtype),
            bias_of(parts.g).to(dtype),
            parts.o.weight.to(dtype),
            bias_of(parts.o).to(dtype),
            None if mask is None else mask != 0,
            parts.N_head,
            rows_of(execution.slice_size, x.shape[2], factor=4),
        )
    )


def refuses(x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None) -> str | None:
    """The reason why not, or None."""
    if parts.g is None:
        return "it gates the output, and there is no gate"
    if bias is not None:
        return "it adds no bias to the logits"
    reason = refusal(x, *parts[:-1])
    if reason is None and any(part.bias is not None for part in (parts.q, parts.k, parts.v)):
        return "its queries, keys and values have no bias"
    return reason


def suits(x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None) -> bool:
    """Whether the gates are many."""
    return not is_small(x.shape[0] * x.shape[1] * x.shape[2] * parts.o.weight.shape[1])


KERNEL = Kernel("streamed", global_attention, refuses, suits)


class _Inputs(NamedTuple):
    x: Tensor  # [B, rows, N, c_in]
    norm_weight: Tensor | None
    norm_bias: Tensor | None
    q_weight: Tensor  # [N_head * c, c_in], scaled
    k_weight: Tensor  # [c, c_in]
    v_weight: Tensor  # [c, c_in]
    g_weight: Tensor
    g_bias: Tensor
    o_weight: Tensor
    o_bias: Tensor
    mask: Tensor | None  # [B, rows, N], bool
    N_head: int
    rows: int


class _Heads(NamedTuple):
    """What all positions of a row have in common."""

    mean: Tensor  # of x, [rows, c_in]
    q: Tensor  # [rows, N_head, c]
    folded: Tensor  # the query with the key projection folded in, [rows, N_head, c_in]
    a: Tensor  # [rows, N_head, N]
    seen: Tensor  # the mean of x by those weights, [rows, N_head, c_in]
    o: Tensor  # [rows, N_head, c]
    weight: Tensor  # from the gate to the update, [rows, c_out, N_head * c]


def _results(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    x, weight = inputs.x, inputs.o_weight
    return torch.empty_like(x, dtype=weight.dtype), weight.new_empty(0), weight.new_empty(0)


def _forward(inputs: _Inputs) -> tuple[Tensor, ...]:
    out, *nothing = _results(inputs)
    norm = ChunkedNorm(inputs.norm_weight, inputs.norm_bias)
    gate = ChunkedLinear(inputs.g_weight, inputs.g_bias)
    for b, part in chunks(inputs.x, inputs.rows):
        x = inputs.x[b, part]
        tokens = norm(x, out.dtype)
        heads = _heads(inputs, tokens.view(x.shape), _mask(inputs, b, part))
        g = gate(tokens).sigmoid_().view(*x.shape[:2], -1)
        out[b, part] = torch.baddbmm(inputs.o_bias, g, heads.weight.transpose(1, 2))
    return out, *nothing


def _backward(grad: Tensor, inputs: _Inputs, *_: Tensor) -> tuple[Tensor, ...]:
    x_grad = torch.empty_like(inputs.x)
    norm = ChunkedNorm(inputs.norm_weight, inputs.norm_bias)
    gate = ChunkedLinear(inputs.g_weight, inputs.g_bias)
    q_grad, k_grad, v_grad = (accumulator(t) for t in (inputs.q_weight, inputs.k_weight, inputs.v_weight))
    o_grad, o_bias_grad = accumulator(inputs.o_weight), accumulator(inputs.o_bias)
    dtype, c = inputs.o_weight.dtype, len(inputs.k_weight)
    for b, part in chunks(inputs.x, inputs.rows):
        mask = _mask(inputs, b, part)
        tokens = norm(inputs.x[b, part], dtype)
        x = tokens.view(inputs.x[b, part].shape)
        heads = _heads(inputs, x, mask)
        g = gate(tokens).sigmoid_().view(*x.shape[:2], -1)
        out_grad = grad[b, part].contiguous()

        o_bias_grad += out_grad.sum((0, 1))
        weight_grad = torch.bmm(out_grad.transpose(1, 2), g)
        g_grad = torch.ops.aten.sigmoid_backward(torch.bmm(out_grad, heads.weight), g).view(len(tokens), -1)
        gate.add_gradients(g_grad, tokens)
        x_sum = gate.backward(g_grad).view(x.shape)
        o_grad += (weight_grad * heads.o.flatten(1)[:, None]).sum(0)

        head_grad = (weight_grad * inputs.o_weight).sum(1).view(-1, c)
        add_product(v_grad, head_grad.t(), heads.seen.flatten(0, 1))
        seen_grad = torch.mm(head_grad, inputs.v_weight).view(heads.seen.shape)
        logit_grad = torch._softmax_backward_data(torch.bmm(seen_grad, x.transpose(1, 2)), heads.a, -1, dtype)
        if mask is not None:
            # A row without any key has equal weights whatever its logits are.
            logit_grad *= mask.any(-1)[:, None, None]
        x_sum.baddbmm_(heads.a.transpose(1, 2), seen_grad)
        x_sum.baddbmm_(logit_grad.transpose(1, 2), heads.folded)

        folded_grad = torch.bmm(logit_grad, x).flatten(0, 1)
        add_product(k_grad, heads.q.reshape(-1, c).t(), folded_grad)
        row_grad = torch.mm(folded_grad, inputs.k_weight.t()).view(len(x), -1)
        add_product(q_grad, row_grad.t(), heads.mean)
        x_sum += _mean_weights(x, mask)[..., None] * torch.mm(row_grad, inputs.q_weight)[:, None]
        x_grad[b, part] = norm.backward(x_sum.view(len(tokens), -1)).view(x.shape)
    return (
        x_grad,
        *norm.gradients(inputs.x),
        q_grad.to(dtype),
        k_grad.to(dtype),
        v_grad.to(dtype),
        *gate.gradients(),
        o_grad.to(dtype),
        o_bias_grad.to(dtype),
    )


def _workspace(inputs: _Inputs) -> tuple[int, int]:
    """A chunk's norm, gates and their gradients."""
    _, rows, N, c_in = inputs.x.shape
    tokens = min(inputs.rows, rows) * N
    return tokens * (3 * c_in + inputs.o_weight.shape[1]), tokens * (6 * c_in + 4 * inputs.o_weight.shape[1])


_global_attention = define(
    "global_attention", _Inputs, _forward, _backward, _results, n_differentiable=10, workspace=_workspace
)


def _mask(inputs: _Inputs, b: int, part: slice) -> Tensor | None:
    """The mask of some rows, None where it hides nothing."""
    return None if inputs.mask is None or inputs.mask[b, part].all() else inputs.mask[b, part]


def _mean_weights(x: Tensor, mask: Tensor | None) -> Tensor:
    """With which x [rows, N, c] is averaged over its unmasked positions: [rows, N]; all 0 without any."""
    dtype = wide(x.dtype)
    ones = x.new_ones(x.shape[:2], dtype=dtype) if mask is None else mask.to(dtype)
    return ones / (ones.sum(1, keepdim=True) + 1e-10)


def _heads(inputs: _Inputs, x: Tensor, mask: Tensor | None) -> _Heads:
    """The query of each row of x [rows, N, c_in], its weights and its output."""
    rows, dtype, c = len(x), x.dtype, len(inputs.k_weight)
    if mask is None:
        mean = x.mean(1, dtype=wide(dtype)).to(dtype)
    else:
        mean = (_mean_weights(x, mask)[:, None].to(dtype) @ x)[:, 0]
    q = torch.mm(mean, inputs.q_weight.t()).view(rows, inputs.N_head, c)
    folded = q @ inputs.k_weight
    logits = torch.bmm(folded, x.transpose(1, 2))
    if mask is not None:
        logits = logits.to(wide(dtype)).masked_fill_(~mask[:, None], ABSORBING)
    a = torch.softmax(logits, -1).to(dtype)
    seen = torch.bmm(a, x)
    o = seen @ inputs.v_weight.t()
    return _Heads(mean, q, folded, a, seen, o, o.reshape(rows, 1, -1) * inputs.o_weight)
