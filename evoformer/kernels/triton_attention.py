"""Our Triton kernel of gated attention, for GPUs: the logits are made a block at a time, forward and backward.

The gate is applied where the output is written. The gradient of the bias, shared by all rows, is added up row by row
in one program a block, so it is the same on every run, and no tensor has N_seq x N_head x N_res x N_res elements.

`TRITON_INTERPRET=1` in the environment, set before Triton is imported, runs it on a CPU, slowly, for tests.
"""

import os
from typing import NamedTuple

import torch
from torch import Tensor

from evoformer.kernels.core import absent, not_on_cuda, other_dtype, other_width
from evoformer.kernels.kernel import InSlices, Kernel, by_name_only, forward_mode
from evoformer.kernels.operator import define
from evoformer.kernels.parts import AttentionParts
from evoformer.kernels.reference import ALL

WIDTHS = (8, 16, 32, 64)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def gated_attention(
    x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None, rows: slice = ALL
) -> Tensor:
    """`reference.gated_attention`, with all between the projections in one kernel."""
    x = parts.norm(x[:, rows])
    B, n_rows, N, _ = x.shape
    projections = [part for part in (parts.q, parts.k, parts.v, parts.g) if part is not None]
    q, k, v, *g = (part(x).unflatten(-1, (parts.N_head, -1)).flatten(0, 1) for part in projections)
    kinds = None if mask is None else _kinds(mask[:, rows]).reshape(B * n_rows, N)
    o = _attention(_Inputs(q, k, v, g[0] if g else None, bias, kinds))
    return parts.o(o.flatten(-2).unflatten(0, (B, n_rows)))


def refuses(x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None) -> str | None:
    """Why the kernel cannot serve, or None."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return (
        absent("triton")
        or (None if interpreted else not_on_cuda(x))
        or other_width(parts, WIDTHS)
        or other_dtype(x, DTYPES)
        or forward_mode()
    )


def _kinds(mask: Tensor) -> Tensor:
    """What the mask says of each key, in the numbers of `triton_programs`: 0 hidden, 1 seen, 2 the whole row hidden."""
    seen = mask != 0
    return torch.where(seen.any(-1, keepdim=True), seen.to(torch.uint8), 2).to(torch.uint8)


class _Inputs(NamedTuple):
    q: Tensor  # [rows, N, N_head, c], as k, v and gate
    k: Tensor
    v: Tensor
    gate: Tensor | None  # before its sigmoid
    bias: Tensor | None  # [B or 1, N_head, N, N], each for as many rows in turn
    kinds: Tensor | None  # [rows, N], as `_kinds` gives them


def _forward(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """The output [rows, N, N_head, c] and the logsumexp of the logits [rows, N_head, N]."""
    from evoformer.kernels import triton_programs

    out, lse = triton_programs.forward(*inputs)
    return out, lse, out.new_empty(0)


def _backward(grad: Tensor, inputs: _Inputs, lse: Tensor, out: Tensor) -> tuple[Tensor, ...]:
    """Gradients of q, k, v, the gate and the bias."""
    from evoformer.kernels import triton_programs

    return triton_programs.backward(grad, *inputs, out, lse)


def _results(inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """Empty tensors for what `_forward` returns."""
    q = inputs.q
    rows, N, N_head, _ = q.shape
    return q.new_empty(q.shape), q.new_empty(rows, N_head, N, dtype=torch.float32), q.new_empty(0)


_attention = define("triton_attention", _Inputs, _forward, _backward, _results, n_differentiable=5, keeps_result=True)

# Not for "auto": it has run in Triton's interpreter and been compiled for GPUs, and has run on none so far.
KERNEL = Kernel("triton", InSlices(gated_attention, rows_axis=1, axis=1), refuses, by_name_only)
