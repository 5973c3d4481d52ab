"""Triangle multiplication with the edges stored channels first, so that no large tensor is ever permuted.

A chunk of positions times the four stacked weights gives both gated projections as [channels, positions]; the sum over
the third residue is then one matrix product a channel.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from evoformer.execution import Execution, rows_in_slices
from evoformer.kernels.kernel import Kernel, compute_dtype
from evoformer.kernels.operator import define
from evoformer.kernels.parts import TriangleParts
from evoformer.kernels.streaming import (
    ChunkedLinear,
    ChunkedNorm,
    Scratch,
    accumulator,
    add_product,
    bias_of,
    gate_gradient,
    is_recorded,
    is_small,
    norm_parameters,
    refusal,
    rows_of,
)


def triangle_multiplication(z: Tensor, parts: TriangleParts, mask: Tensor | None, *, execution: Execution) -> Tensor:
    """`reference.triangle_multiplication`, in chunks of positions."""
    projections = (parts.a_p, parts.a_g, parts.b_p, parts.b_g)
    dtype = compute_dtype(parts.z.weight)
    return _triangle_multiplication(
        _Inputs(
            z.contiguous(),
            *norm_parameters(parts.norm_in),
            torch.cat([part.weight for part in projections]).to(dtype),
            torch.cat([bias_of(part) for part in projections]).to(dtype),
            *norm_parameters(parts.norm_out),
            parts.g.weight.to(dtype),
            bias_of(parts.g).to(dtype),
            parts.z.weight.to(dtype),
            bias_of(parts.z).to(dtype),
            None if mask is None else mask.to(dtype),
            parts.outgoing,
            rows_of(execution.slice_size, z.shape[2]) * z.shape[2],
            execution.recompute == "none" and is_recorded(z, *parts[:-1]),
        )
    )


def refuses(z: Tensor, parts: TriangleParts, mask: Tensor | None) -> str | None:
    """The reason why not, or None."""
    return refusal(z, *parts[:-1])


def suits(z: Tensor, parts: TriangleParts, mask: Tensor | None) -> bool:
    """Whether the pair representation is large."""
    return not is_small(z.shape[0] * z.shape[1] * z.shape[2] * len(parts.a_p.weight))


KERNEL = Kernel("streamed", triangle_multiplication, refuses, suits)


class _Inputs(NamedTuple):
    z: Tensor  # [B, N_res, N_res, c_z]
    norm_in_weight: Tensor | None
    norm_in_bias: Tensor | None
    weight: Tensor  # a's projection and gate, then b's: [4 c, c_z]
    bias: Tensor
    norm_out_weight: Tensor | None
    norm_out_bias: Tensor | None
    g_weight: Tensor
    g_bias: Tensor
    z_weight: Tensor
    z_bias: Tensor
    mask: Tensor | None
    outgoing: bool
    chunk: int  # positions
    keep: bool


def _results(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """The update, and where they are kept the edges a and b [B, 2, c, N_res, N_res] and the sum x of their products."""
    z, weight = inputs.z, inputs.weight
    B, N_res, c = z.shape[0], z.shape[1], len(weight) // 4
    edges = weight.new_empty(B, 2, c, N_res, N_res) if inputs.keep else weight.new_empty(0)
    x = weight.new_empty(B, c, N_res, N_res) if inputs.keep else weight.new_empty(0)
    return torch.empty_like(z, dtype=weight.dtype), edges, x


def _forward(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    out, all_edges, all_x = _results(inputs)
    norm_in = ChunkedNorm(inputs.norm_in_weight, inputs.norm_in_bias)
    norm_out = ChunkedNorm(inputs.norm_out_weight, inputs.norm_out_bias)
    gate, project = ChunkedLinear(inputs.g_weight, inputs.g_bias), ChunkedLinear(inputs.z_weight, inputs.z_bias)
    scratch = Scratch(inputs.weight)
    for b in range(len(inputs.z)):
        z, mask = _positions(inputs, b)
        edges, x = (all_edges[b], all_x[b]) if inputs.keep else _room_beside(inputs, out[b])
        _write_sums(inputs, norm_in, z, mask, edges, x, scratch)
        result = out[b].view(z.shape)
        for part in rows_in_slices(len(z), inputs.chunk):
            tokens, normed = norm_in(z[part], x.dtype), norm_out(_channels_last(x, part, scratch), x.dtype)
            g, update = _gate_and_update(gate, project, tokens, normed, scratch)
            torch.mul(update, g, out=result[part])
    return out, all_edges, all_x


def _backward(grad: Tensor, inputs: _Inputs, all_edges: Tensor, all_x: Tensor) -> tuple[Tensor, ...]:
    z_grads, weight_grad, bias_grad = torch.empty_like(inputs.z), accumulator(inputs.weight), accumulator(inputs.bias)
    norm_in = ChunkedNorm(inputs.norm_in_weight, inputs.norm_in_bias)
    norm_out = ChunkedNorm(inputs.norm_out_weight, inputs.norm_out_bias)
    gate, project = ChunkedLinear(inputs.g_weight, inputs.g_bias), ChunkedLinear(inputs.z_weight, inputs.z_bias)
    dtype, c, scratch = inputs.weight.dtype, len(inputs.weight) // 4, Scratch(inputs.weight)
    gate_weight = inputs.weight.unflatten(0, (2, 2, c))[:, 1].flatten(0, 1)
    gate_bias = inputs.bias.unflatten(0, (2, 2, c))[:, 1].flatten()
    for b in range(len(inputs.z)):
        z, mask = _positions(inputs, b)
        if inputs.keep:
            edges, x = all_edges[b], all_x[b]
        else:
            edges, x = _room(inputs)
            _write_sums(inputs, norm_in, z, mask, edges, x, scratch)
        x_grad = torch.empty_like(x)
        z_grad, out_grad = z_grads[b].view(z.shape), grad[b].reshape(z.shape)
        for part in rows_in_slices(len(z), inputs.chunk):
            tokens, normed = norm_in(z[part], dtype), norm_out(_channels_last(x, part, scratch), dtype)
            g, update = _gate_and_update(gate, project, tokens, normed, scratch)
            update_grad = torch.mul(out_grad[part], g, out=scratch("update_grad", *g.shape))
            g_grad = torch.ops.aten.sigmoid_backward.grad_input(update.mul_(out_grad[part]), g, grad_input=update)
            gate.add_gradients(g_grad, tokens)
            z_grad[part] = gate.backward(g_grad, out=scratch("tokens_grad", *tokens.shape))
            project.add_gradients(update_grad, normed)
            normed_grad = project.backward(update_grad, out=scratch("normed_grad", *normed.shape))
            x_grad.view(c, -1)[:, part] = norm_out.backward(normed_grad).t()
        edges_grad = _edges_backward(inputs, edges, x_grad).view(2, c, -1)
        del x, x_grad
        for part in rows_in_slices(len(z), inputs.chunk):
            tokens = norm_in(z[part], dtype)
            gates = _channels_first(gate_weight, gate_bias, tokens, scratch).sigmoid_()
            packed_grad = scratch("packed_grad", 4, c, len(tokens))
            for i, g in enumerate(gates.unflatten(0, (2, c))):
                edge, edge_grad = edges[i].view(c, -1)[:, part], edges_grad[i, :, part]
                p_grad = torch.mul(edge_grad, g, out=packed_grad[2 * i])
                if mask is not None:
                    p_grad *= mask[part]
                gate_gradient(edge_grad, edge, g, out=packed_grad[2 * i + 1])  # the edge has its mask
            packed_grad = packed_grad.flatten(0, 1)
            add_product(weight_grad, packed_grad, tokens)
            bias_grad += packed_grad.sum(1)
            tokens_grad = scratch("tokens_grad", *tokens.shape)
            torch.addmm(z_grad[part].to(dtype), packed_grad.t(), inputs.weight, out=tokens_grad)
            z_grad[part] = norm_in.backward(tokens_grad)
    return (
        z_grads,
        *norm_in.gradients(inputs.z),
        weight_grad.to(dtype),
        bias_grad.to(dtype),
        *norm_out.gradients(inputs.z),
        *gate.gradients(),
        *project.gradients(),
    )


def _workspace(inputs: _Inputs) -> tuple[int, int]:
    """Edges, sums and their gradients of one batch index, as far as they are not kept, and a chunk.

    The forward pass makes the edges in the memory of the result where it keeps none.
    """
    _, N_res, _, c_z = inputs.z.shape
    edges = len(inputs.weight) // 4 * N_res * N_res
    chunk = min(inputs.chunk, N_res * N_res) * (2 * len(inputs.weight) + 4 * c_z)
    return (0 if inputs.keep else edges) + chunk, (3 if inputs.keep else 6) * edges + chunk


_triangle_multiplication = define(
    "triangle_multiplication", _Inputs, _forward, _backward, _results, n_differentiable=11, workspace=_workspace
)


def _positions(inputs: _Inputs, b: int) -> tuple[Tensor, Tensor | None]:
    """z [N_res * N_res, c_z] of a batch index and its mask [N_res * N_res], None where it hides nothing."""
    mask = None if inputs.mask is None else inputs.mask[b].reshape(-1)
    return inputs.z[b].reshape(-1, inputs.z.shape[-1]), None if mask is None or mask.all() else mask


def _channels_last(x: Tensor, part: slice, scratch: Scratch) -> Tensor:
    """Some positions of x [c, N_res, N_res] as [positions, c]; a copy of the part first, since it then turns fast."""
    return scratch.copy("x", x.flatten(1)[:, part]).t()


def _gate_and_update(
    gate: ChunkedLinear, project: ChunkedLinear, tokens: Tensor, normed: Tensor, scratch: Scratch
) -> tuple[Tensor, Tensor]:
    """The gate and what it lets through, [positions, c_z] each."""
    shape = len(tokens), len(gate.weight)
    return gate(tokens, out=scratch("g", *shape)).sigmoid_(), project(normed, out=scratch("update", *shape))


def _packed(inputs: _Inputs, tokens: Tensor, scratch: Scratch, channels: slice) -> Tensor:
    """Projections and gates of some positions, channels first: a's, a's gate's, b's, b's gate's, [4, c, tokens]."""
    weight = inputs.weight.unflatten(0, (4, -1))[:, channels].flatten(0, 1)
    bias = inputs.bias.unflatten(0, (4, -1))[:, channels].flatten()
    return _channels_first(weight, bias, tokens, scratch).unflatten(0, (4, -1))


def _channels_first(weight: Tensor, bias: Tensor, tokens: Tensor, scratch: Scratch) -> Tensor:
    """A linear layer of some positions: [c_out, tokens]."""
    return torch.addmm(bias[:, None], weight, tokens.t(), out=scratch("packed", len(weight), len(tokens)))


def _room(inputs: _Inputs) -> tuple[Tensor, Tensor]:
    """Memory for the edges a and b, [2, c, N_res, N_res], and for the sums of their products, [c, N_res, N_res]."""
    c, N_res = len(inputs.weight) // 4, inputs.z.shape[1]
    return inputs.weight.new_empty(2, c, N_res, N_res), inputs.weight.new_empty(c, N_res, N_res)


def _room_beside(inputs: _Inputs, out: Tensor) -> tuple[Tensor, Tensor]:
    """As `_room`, but the edges of some channels at a time lie in the memory of the result, which comes last."""
    c, N_res = len(inputs.weight) // 4, inputs.z.shape[1]
    channels = min(c, out.numel() // (2 * N_res * N_res))
    if 4 * channels < c:
        return _room(inputs)
    edges = out.view(-1)[: 2 * channels * N_res * N_res].view(2, channels, N_res, N_res)
    return edges, inputs.weight.new_empty(c, N_res, N_res)


def _write_sums(
    inputs: _Inputs, norm: ChunkedNorm, z: Tensor, mask: Tensor | None, edges: Tensor, x: Tensor, scratch: Scratch
) -> None:
    """Write the sums of the products of the gated projections into x, for as many channels at a time as edges has."""
    a, b = edges
    left, right = (a, b.transpose(1, 2)) if inputs.outgoing else (a.transpose(1, 2), b)
    for channels in rows_in_slices(len(x), len(a)):
        n = channels.stop - channels.start
        for part in rows_in_slices(len(z), inputs.chunk):
            p, g = _packed(inputs, norm(z[part], x.dtype), scratch, channels).unflatten(0, (2, 2)).unbind(1)
            columns = edges[:, :n].flatten(2)[..., part]
            torch.mul(g.sigmoid_(), p, out=columns)
            if mask is not None:
                columns *= mask[part]
        torch.bmm(left[:n], right[:n], out=x[channels])


def _edges_backward(inputs: _Inputs, edges: Tensor, x_grad: Tensor) -> Tensor:
    """The gradients of a and b."""
    (a, b), grads = edges, torch.empty_like(edges)
    if inputs.outgoing:
        torch.bmm(x_grad, b, out=grads[0])
        torch.bmm(x_grad.transpose(1, 2), a, out=grads[1])
    else:
        torch.bmm(b, x_grad.transpose(1, 2), out=grads[0])
        torch.bmm(a, x_grad, out=grads[1])
    return grads
