"""Gated attention in chunks of rows: row, column and both triangle attentions, with the LayerNorm before them.

The logits exist for a few rows at a time and are computed again in the backward pass. Each chunk has one matrix product
for queries, keys, values and gates; the gradient of the pair bias is one array, to which every row adds.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from evoformer.execution import Execution, rows_in_slices
from evoformer.kernels.kernel import Kernel, compute_dtype
from evoformer.kernels.operator import define
from evoformer.kernels.parts import AttentionParts
from evoformer.kernels.streaming import (
    ABSORBING,
    ChunkedLinear,
    ChunkedNorm,
    accumulator,
    bias_of,
    chunks,
    is_recorded,
    is_small,
    norm_parameters,
    refusal,
    rows_of,
    wide,
)

LOGITS = 2**18  # of the rows whose logits are made together, one row at least: 1 MiB in float32


def gated_attention(
    x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None, *, execution: Execution
) -> Tensor:
    """`reference.gated_attention`, in chunks of rows."""
    projections = [part for part in (parts.q, parts.k, parts.v, parts.g) if part is not None]
    scale = (parts.o.weight.shape[1] // parts.N_head) ** -0.5
    # The scale of the queries goes into their weights; autograd takes the packing apart again.
    weight = torch.cat([parts.q.weight * scale, *(part.weight for part in projections[1:])])
    biases = [bias_of(part) for part in projections]
    dtype = compute_dtype(weight)
    return _attention(
        _Inputs(
            x,
            *norm_parameters(parts.norm),
            weight.to(dtype),
            torch.cat([biases[0] * scale, *biases[1:]]).to(dtype),
            parts.o.weight.to(dtype),
            bias_of(parts.o).to(dtype),
            bias,
            None if mask is None else mask != 0,
            parts.N_head,
            rows_of(execution.slice_size, x.shape[2]),
            execution.recompute == "none" and is_recorded(x, bias, *parts[:-1]),
        )
    )


def refuses(x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None) -> str | None:
    """The reason why not, or None."""
    return refusal(x, *parts[:-1])


def suits(x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None) -> bool:
    """Whether the logits are too many to be kept at once."""
    B, rows, N, _ = x.shape
    return not is_small(B * rows * N * N * parts.N_head)


KERNEL = Kernel("streamed", gated_attention, refuses, suits)


class _Inputs(NamedTuple):
    x: Tensor  # [B, rows, N, c_in]
    norm_weight: Tensor | None
    norm_bias: Tensor | None
    weight: Tensor  # queries, keys, values and, where there are any, gates: [4 * N_head * c, c_in]
    bias: Tensor
    o_weight: Tensor
    o_bias: Tensor
    pair_bias: Tensor | None  # [B or 1, N_head, N, N]
    mask: Tensor | None  # [B, rows, N], bool
    N_head: int
    rows: int
    keep: bool

    @property
    def width(self) -> int:
        """N_head * c."""
        return self.o_weight.shape[1]


def _results(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """The update, which lies in memory as x does, and where it is kept the packed projection of every position."""
    x, weight = inputs.x, inputs.weight
    packed = weight.new_empty(*x.shape[:-1], len(weight)) if inputs.keep else weight.new_empty(0)
    return torch.empty_like(x, dtype=weight.dtype), packed, weight.new_empty(0)


def _forward(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    x, dtype = inputs.x, inputs.weight.dtype
    out, kept, nothing = _results(inputs)
    norm = ChunkedNorm(inputs.norm_weight, inputs.norm_bias)
    project, project_o = ChunkedLinear(inputs.weight, inputs.bias), ChunkedLinear(inputs.o_weight, inputs.o_bias)
    logit_biases = _logit_biases(inputs)
    for b, part in chunks(inputs.x, inputs.rows):
        packed = project(norm(x[b, part], dtype), out=kept[b, part] if inputs.keep else None)
        q, k, v, *gate = packed.view(-1, x.shape[2], packed.shape[-1]).split(inputs.width, -1)
        q, k, v = (t.unflatten(-1, (inputs.N_head, -1)).transpose(1, 2) for t in (q, k, v))
        o = _attend(q, k, v, logit_biases[b % len(logit_biases)], _masked_logits(inputs, b, part))
        if gate:
            o = torch.sigmoid(gate[0]).mul_(o)
        project_o(o.reshape(-1, inputs.width), out=out[b, part])
        del packed, q, k, v, gate, o  # before the next chunk's
    return out, kept, nothing


def _backward(grad: Tensor, inputs: _Inputs, kept: Tensor, _: Tensor) -> tuple[Tensor, ...]:
    x, width, dtype = inputs.x, inputs.width, inputs.weight.dtype
    x_grad = torch.empty_like(x)
    norm = ChunkedNorm(inputs.norm_weight, inputs.norm_bias)
    project, project_o = ChunkedLinear(inputs.weight, inputs.bias), ChunkedLinear(inputs.o_weight, inputs.o_bias)
    logit_biases = _logit_biases(inputs)
    pair_bias_grad = x.new_empty(0) if inputs.pair_bias is None else accumulator(inputs.pair_bias)
    for b, part in chunks(inputs.x, inputs.rows):
        tokens = norm(x[b, part], dtype)
        packed = kept[b, part] if inputs.keep else project(tokens).view(-1, x.shape[2], len(inputs.weight))
        packed_grad = torch.empty_like(packed)
        o = packed.new_empty(*packed.shape[:2], width)
        out_grad = grad[b, part].reshape(len(tokens), -1)
        gated_grad = torch.mm(out_grad, inputs.o_weight).view(o.shape)  # of the output after its gate
        is_gated = packed.shape[-1] > 3 * width
        g = torch.sigmoid(packed[..., 3 * width :]) if is_gated else None
        _attend_backward(
            gated_grad if g is None else gated_grad * g,
            packed,
            logit_biases[b % len(logit_biases)],
            _masked_logits(inputs, b, part),
            inputs.N_head,
            o,
            packed_grad,
            pair_bias_grad[b % len(pair_bias_grad)] if inputs.pair_bias is not None else None,
        )
        if g is not None:
            torch.mul(gated_grad.mul_(o), g - g * g, out=packed_grad[..., 3 * width :])
            o *= g
        project_o.backward(out_grad, o.view(len(tokens), width))
        tokens_grad = project.backward(packed_grad.view(len(tokens), -1), tokens)
        x_grad[b, part] = norm.backward(tokens_grad).view(x[b, part].shape)
        del packed, packed_grad, o, g, gated_grad, tokens, tokens_grad  # before the next chunk's
    return (
        x_grad,
        *norm.gradients(x),
        *project.gradients(),
        *project_o.gradients(),
        pair_bias_grad if inputs.pair_bias is None else pair_bias_grad.to(inputs.pair_bias.dtype),
    )


def _workspace(inputs: _Inputs) -> tuple[int, int]:
    """A chunk's projections and the logits of a few rows."""
    _, rows, N, c_in = inputs.x.shape
    tokens = min(inputs.rows, rows) * N
    logits = max(inputs.N_head * N * N, LOGITS)
    packed, width = len(inputs.weight), inputs.width
    return tokens * (2 * c_in + packed + 2 * width), tokens * (4 * c_in + 2 * packed + 8 * width) + 2 * logits


_attention = define("gated_attention", _Inputs, _forward, _backward, _results, n_differentiable=8, workspace=_workspace)


def _logit_biases(inputs: _Inputs) -> list[Tensor | None]:
    """The pair bias of each batch index, [N_head, N, N]; one for all where there is only one, or none."""
    if inputs.pair_bias is None:
        return [None]
    # PyTorch's fused attention takes its slow path for a mask that requires a gradient, even where none is recorded.
    return list(inputs.pair_bias.detach().to(wide(inputs.weight.dtype)).contiguous())


def _masked_logits(inputs: _Inputs, b: int, part: slice) -> Tensor | None:
    """What the mask adds to the logits of each row, [rows, N]; None where it hides nothing."""
    if inputs.mask is None or inputs.mask[b, part].all():
        return None
    mask = inputs.mask[b, part]
    return inputs.weight.new_zeros(mask.shape, dtype=wide(inputs.weight.dtype)).masked_fill_(~mask, ABSORBING)


def _groups(rows: int, N_head: int, N: int) -> Iterator[slice]:
    """Few rows, so that their logits stay in the cache."""
    return rows_in_slices(rows, max(1, LOGITS // (N_head * N * N)))


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, masked: Tensor | None) -> Tensor:
    """Attention of scaled queries: q, k, v [rows, N_head, N, c] to [rows, N, N_head * c]."""
    rows, N_head, N, c = q.shape
    if q.dtype in (torch.float32, torch.float64) and masked is None:
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=None if bias is None else bias[None], scale=1.0)
        return o.transpose(1, 2).reshape(rows, N, N_head * c)
    out = q.new_empty(rows, N, N_head, c)
    for group in _groups(rows, N_head, N):
        heads = [t[group].reshape(-1, N, c) for t in (q, k, v)]
        a = _weights(heads[0], heads[1], bias, None if masked is None else masked[group])
        out[group] = torch.bmm(a, heads[2]).view(-1, N_head, N, c).transpose(1, 2)
    return out.view(rows, N, N_head * c)


def _weights(q: Tensor, k: Tensor, bias: Tensor | None, masked: Tensor | None) -> Tensor:
    """Attention weights of q, k [rows * N_head, N, c]; bias, mask and softmax act in float32 at least."""
    if bias is not None and len(bias) == len(q) and q.dtype in (torch.float32, torch.float64):
        logits = torch.baddbmm(bias, q, k.transpose(1, 2))
    else:
        logits = torch.bmm(q, k.transpose(1, 2))
        logits = logits.to(wide(q.dtype))
        if bias is not None:
            logits.view(-1, *bias.shape).add_(bias)
    if masked is not None:
        logits.view(len(masked), -1, *logits.shape[1:]).add_(masked[:, None, None, :])
    return torch.softmax(logits, -1, out=logits).to(q.dtype)


def _attend_backward(
    o_grad: Tensor,
    packed: Tensor,
    bias: Tensor | None,
    masked: Tensor | None,
    N_head: int,
    o: Tensor,
    packed_grad: Tensor,
    bias_grad: Tensor | None,
) -> None:
    """Write the output `o` again and the gradients of q, k, v into `packed_grad`, and add to that of the bias.

    Shapes:
        o_grad, o: [rows, N, N_head * c]
        packed, packed_grad: [rows, N, (q k v g) * N_head * c]
        bias, bias_grad: [N_head, N, N]
        masked: [rows, N]
    """
    rows, N, width = o_grad.shape
    c = width // N_head
    for group in _groups(rows, N_head, N):
        heads = _qkv(packed[group], N_head, c).permute(2, 0, 3, 1, 4).reshape(3, -1, N, c)
        q, k, v = heads
        o_grads = o_grad[group].unflatten(-1, (N_head, c)).transpose(1, 2).reshape(-1, N, c)
        a = _weights(q, k, bias, None if masked is None else masked[group])
        o[group].unflatten(-1, (N_head, c)).copy_(torch.bmm(a, v).view(-1, N_head, N, c).transpose(1, 2))
        logit_grad = torch.bmm(o_grads, v.transpose(1, 2))
        torch._softmax_backward_data(logit_grad, a, -1, a.dtype, grad_input=logit_grad)
        by_row = logit_grad.view(-1, N_head, N, N)
        if masked is not None:
            # A row without any key has equal weights whatever its logits are.
            by_row.mul_((masked[group] == 0).any(-1)[:, None, None, None])
        if bias_grad is not None:
            bias_grad += by_row[0] if len(by_row) == 1 else by_row.sum(0)
        heads_grad = torch.empty_like(heads)
        torch.bmm(logit_grad, k, out=heads_grad[0])
        torch.bmm(logit_grad.transpose(1, 2), q, out=heads_grad[1])
        torch.bmm(a.transpose(1, 2), o_grads, out=heads_grad[2])
        _qkv(packed_grad[group], N_head, c).copy_(heads_grad.view(3, -1, N_head, N, c).permute(1, 3, 0, 2, 4))


def _qkv(packed: Tensor, N_head: int, c: int) -> Tensor:
    """Queries, keys and values, a view [rows, N, 3, N_head, c]."""
    return packed[..., : 3 * N_head * c].unflatten(-1, (3, N_head, c))
