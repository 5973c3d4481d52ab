"""Gated attention in chunks of rows: row, column and both triangle attentions, with the LayerNorm before them.

The logits exist for a few rows at a time and are computed again in the backward pass. Each chunk has one matrix product
for queries, keys, values and gates; the gradient of the pair bias is one array, to which every row adds. What is kept
are these projections and the gated outputs; the sigmoid's input has their gradient times themselves times 1 - gate.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from evoformer.execution import Execution, rows_in_slices
from evoformer.kernels.kernel import Kernel, compute_dtype
from evoformer.kernels.operator import define
from evoformer.kernels.parts import AttentionParts
from evoformer.kernels.streaming import (
    ABSORBING,
    ChunkedLinear,
    ChunkedNorm,
    Scratch,
    accumulator,
    bias_of,
    chunks,
    gate_gradient,
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
    dtype = compute_dtype(weight)
    return _attention(
        _Inputs(
            x,
            *norm_parameters(parts.norm),
            weight.to(dtype),
            _bias(projections, scale).to(dtype),
            parts.o.weight.to(dtype),
            bias_of(parts.o).to(dtype),
            bias,
            None if mask is None else mask != 0,
            parts.N_head,
            rows_of(execution.slice_size, x.shape[2]),
            execution.recompute == "none" and is_recorded(x, bias, *parts[:-1]),
            parts.g is not None and _is_long(x),
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
    bias: Tensor  # of the last of these, from the first on that has one
    o_weight: Tensor
    o_bias: Tensor
    pair_bias: Tensor | None  # [B or 1, N_head, N, N]
    mask: Tensor | None  # [B, rows, N], bool
    N_head: int
    rows: int
    keep: bool
    replaces_gate: bool  # whether the gated output is kept in the gate's place, not beside it

    @property
    def width(self) -> int:
        """N_head * c."""
        return self.o_weight.shape[1]

    @property
    def is_gated(self) -> bool:
        """Whether there are gates."""
        return len(self.weight) > 3 * self.width


def _results(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """The update, which lies in memory as x does, and where they are kept the projections and the gated outputs."""
    x, weight = inputs.x, inputs.weight
    packed, gated = weight.new_empty(0), weight.new_empty(0)
    if inputs.keep:
        packed = weight.new_empty(*x.shape[:-1], len(weight))
    if inputs.keep and not inputs.replaces_gate:
        gated = weight.new_empty(*x.shape[:-1], inputs.width)
    return torch.empty_like(x, dtype=weight.dtype), packed, gated


def _forward(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    x, dtype = inputs.x, inputs.weight.dtype
    out, all_packed, all_gated = _results(inputs)
    norm, scratch = ChunkedNorm(inputs.norm_weight, inputs.norm_bias), Scratch(inputs.weight)
    project, project_o = ChunkedLinear(inputs.weight, inputs.bias), ChunkedLinear(inputs.o_weight, inputs.o_bias)
    logit_biases = _logit_biases(inputs)
    for b, part in chunks(inputs.x, inputs.rows):
        tokens = norm(x[b, part], dtype)
        shape = *x[b, part].shape[:2], len(inputs.weight)
        packed = all_packed[b, part] if inputs.keep else scratch("packed", *shape)
        project(tokens, out=packed)
        g = _gates(inputs, packed).sigmoid_()
        o = _attend(packed, logit_biases[b % len(logit_biases)], _masked_logits(inputs, b, part), inputs, scratch)
        gated = o
        if inputs.keep:
            gated = g if inputs.replaces_gate else all_gated[b, part]
        if inputs.is_gated:
            torch.mul(o, g, out=gated)
        else:
            gated.copy_(o)
        project_o(gated.view(len(tokens), -1), out=out[b, part])
    return out, all_packed, all_gated


def _backward(grad: Tensor, inputs: _Inputs, all_packed: Tensor, all_gated: Tensor) -> tuple[Tensor, ...]:
    x, width, dtype = inputs.x, inputs.width, inputs.weight.dtype
    x_grad = torch.empty_like(x)
    norm, scratch = ChunkedNorm(inputs.norm_weight, inputs.norm_bias), Scratch(inputs.weight)
    project, project_o = ChunkedLinear(inputs.weight, inputs.bias), ChunkedLinear(inputs.o_weight, inputs.o_bias)
    project_g = ChunkedLinear(inputs.weight[3 * width :], project.bias[3 * width :])
    logit_biases = _logit_biases(inputs)
    # Contiguous, as the logits are: the ending node's bias is a transposed view.
    pair_bias_grad = x.new_empty(0) if inputs.pair_bias is None else accumulator(inputs.pair_bias.contiguous())
    for b, part in chunks(inputs.x, inputs.rows):
        tokens = norm(x[b, part], dtype)
        T, shape = len(tokens), (*x[b, part].shape[:2], width)
        packed = all_packed[b, part] if inputs.keep else scratch("packed", *shape[:2], len(inputs.weight))
        if not inputs.keep:  # the outputs are made again beside the gradients
            project(tokens, out=packed)
            g, gated = _gates(inputs, packed).sigmoid_(), scratch("gated", *shape)
        elif inputs.replaces_gate:
            g, gated = project_g(tokens, out=scratch("g", *shape)).view(shape).sigmoid_(), _gates(inputs, packed)
        else:
            g, gated = _gates(inputs, packed), all_gated[b, part]
        packed_grad = scratch("packed_grad", *packed.shape)
        out_grad = grad[b, part].reshape(T, -1)
        o_grad = gated_grad = project_o.backward(out_grad, out=scratch("gated_grad", T, width)).view(shape)
        if inputs.is_gated:
            o_grad = torch.mul(gated_grad, g, out=scratch("o_grad", *shape))
        _attend_backward(
            o_grad,
            packed,
            logit_biases[b % len(logit_biases)],
            _masked_logits(inputs, b, part),
            inputs.N_head,
            None if inputs.keep else gated,
            packed_grad,
            pair_bias_grad[b % len(pair_bias_grad)] if inputs.pair_bias is not None else None,
            scratch,
        )
        if inputs.is_gated:
            if not inputs.keep:
                gated *= g
            gate_gradient(gated_grad, gated, g, out=_gates(inputs, packed_grad))
        project_o.add_gradients(out_grad, gated.view(T, width))
        project.add_gradients(packed_grad.view(T, -1), tokens)
        tokens_grad = project.backward(packed_grad.view(T, -1), out=scratch("tokens_grad", *tokens.shape))
        x_grad[b, part] = norm.backward(tokens_grad).view(x[b, part].shape)
    return (
        x_grad,
        *norm.gradients(x),
        *project.gradients(),
        *project_o.gradients(),
        pair_bias_grad if inputs.pair_bias is None else torch.empty_like(inputs.pair_bias).copy_(pair_bias_grad),
    )


def _workspace(inputs: _Inputs) -> tuple[int, int]:
    """A chunk's projections and the logits of a few rows."""
    _, rows, N, c_in = inputs.x.shape
    tokens = min(inputs.rows, rows) * N
    logits = max(inputs.N_head * N * N, LOGITS)
    packed, width = len(inputs.weight), inputs.width
    return tokens * (2 * c_in + packed + 2 * width), tokens * (4 * c_in + 2 * packed + 8 * width) + 2 * logits


_attention = define("gated_attention", _Inputs, _forward, _backward, _results, n_differentiable=8, workspace=_workspace)


def _is_long(x: Tensor) -> bool:
    """Whether a position attends to so many that its gate is cheaper to make again than its output.

    A length that is not known while a graph is exported is long.
    """
    return not isinstance(x.shape[2], int) or x.shape[2] > x.shape[3]


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


def _bias(projections: list[nn.Linear], scale: float) -> Tensor:
    """The bias of the first projection that has one, and of all that follow; that of the queries is scaled."""
    first = next((i for i, part in enumerate(projections) if part.bias is not None), len(projections))
    biases = [bias_of(part) * (scale if i == 0 else 1) for i, part in enumerate(projections)]
    return torch.cat([projections[0].weight.new_empty(0), *biases[first:]])


def _gates(inputs: _Inputs, packed: Tensor) -> Tensor:
    """The last of queries, keys, values and gates side by side, [rows, N, (q k v g) * N_head * c]."""
    return packed[..., 3 * inputs.width :]


def _attend(packed: Tensor, bias: Tensor | None, masked: Tensor | None, inputs: _Inputs, scratch: Scratch) -> Tensor:
    """Attention of scaled queries, from [rows, N, (q k v g) * N_head * c] to [rows, N, N_head * c], before the gate."""
    rows, N, _ = packed.shape
    qkv = _heads(packed[..., : 3 * inputs.width], 3, inputs.N_head)
    if packed.dtype in (torch.float32, torch.float64) and masked is None:
        q, k, v = qkv
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=None if bias is None else bias[None], scale=1.0)
        return o.transpose(1, 2).reshape(rows, N, -1)
    out = scratch("o", rows, N, inputs.width)
    for group in _groups(rows, inputs.N_head, N):
        _attend_group(qkv[:, group], bias, None if masked is None else masked[group], out[group], scratch)
    return out


def _attend_backward(
    o_grad: Tensor,
    packed: Tensor,
    bias: Tensor | None,
    masked: Tensor | None,
    N_head: int,
    o: Tensor | None,
    packed_grad: Tensor,
    bias_grad: Tensor | None,
    scratch: Scratch,
) -> None:
    """Write the gradients of q, k, v into `packed_grad`, add to that of the bias, and write the output `o` if asked to.

    Shapes:
        o_grad, o: [rows, N, N_head * c]
        packed, packed_grad: [rows, N, (q k v g) * N_head * c]
        bias, bias_grad: [N_head, N, N]
        masked: [rows, N]
    """
    rows, N, width = o_grad.shape
    for group in _groups(rows, N_head, N):
        qkv = _heads(packed[group, :, : 3 * width], 3, N_head)
        masked_group = None if masked is None else masked[group]
        q, k, v, a = _attend_group(qkv, bias, masked_group, None if o is None else o[group], scratch)
        o_grads = scratch.copy("o_grads", _heads(o_grad[group], 1, N_head)).flatten(0, 2)
        logit_grad = torch.bmm(o_grads, v.transpose(1, 2), out=scratch("logit_grad", *a.shape))
        torch._softmax_backward_data(logit_grad, a, -1, a.dtype, grad_input=logit_grad)
        by_row = logit_grad.view(-1, N_head, N, N)
        if masked is not None:
            # A row without any key has equal weights whatever its logits are.
            by_row.mul_((masked[group] == 0).any(-1)[:, None, None, None])
        if bias_grad is not None:
            for row in by_row:
                bias_grad += row
        qkv_grad = scratch("qkv_grad", *qkv.shape)
        q_grad, k_grad, v_grad = qkv_grad.flatten(1, 2)
        torch.bmm(logit_grad, k, out=q_grad)
        torch.bmm(logit_grad.transpose(1, 2), q, out=k_grad)
        torch.bmm(a.transpose(1, 2), o_grads, out=v_grad)
        _heads(packed_grad[group, :, : 3 * width], 3, N_head).copy_(qkv_grad)


def _attend_group(
    qkv: Tensor, bias: Tensor | None, masked: Tensor | None, out: Tensor | None, scratch: Scratch
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Write the output of a few rows, from qkv [3, rows, N_head, N, c] to out [rows, N, N_head * c], if asked to.

    Returns:
        Copies of q, k, v [rows * N_head, N, c] and the weights [rows * N_head, N, N].
    """
    q, k, v = scratch.copy("qkv", qkv).flatten(1, 2)
    a = _weights(q, k, bias, masked, scratch)
    if out is not None:
        o = torch.bmm(a, v, out=scratch("o_heads", *v.shape))
        _heads(out, 1, qkv.shape[2]).copy_(o.view(1, *qkv.shape[1:]))
    return q, k, v, a


def _weights(q: Tensor, k: Tensor, bias: Tensor | None, masked: Tensor | None, scratch: Scratch) -> Tensor:
    """Attention weights of q, k [rows * N_head, N, c]; bias, mask and softmax act in float32 at least."""
    rows, N, _ = q.shape
    logits = scratch("logits", rows, N, N, dtype=wide(q.dtype))
    narrow = logits if q.dtype == logits.dtype else scratch("narrow", rows, N, N)
    if bias is not None and len(bias) == rows and narrow is logits:
        torch.baddbmm(bias, q, k.transpose(1, 2), out=logits)
    else:
        logits.copy_(torch.bmm(q, k.transpose(1, 2), out=narrow))
        if bias is not None:
            logits.view(-1, *bias.shape).add_(bias)
    if masked is not None:
        logits.view(len(masked), -1, N, N).add_(masked[:, None, None, :])
    return narrow.copy_(torch.softmax(logits, -1, out=logits))


def _heads(x: Tensor, n: int, N_head: int) -> Tensor:
    """n tensors side by side, [rows, N, n * N_head * c], as a view [n, rows, N_head, N, c]."""
    return x.unflatten(-1, (n, N_head, -1)).permute(2, 0, 3, 1, 4)
