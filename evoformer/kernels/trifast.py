"""The kernel of the package trifast as the core of triangle attention.

Its `triangle_attention(q, k, v, bias, mask)` takes q, k, v [B, N_head, N, N, c], so as many rows as positions, a bias
[B, N_head, N, N] and a bool mask [B, N, N] that is True where a key is hidden. Both are required.
"""

from dataclasses import replace

import torch
from torch import Tensor

from evoformer.execution import Execution
from evoformer.kernels.core import (
    absent,
    around,
    not_on_cuda,
    other_dtype,
    other_width,
    seen_keys,
    when,
    with_dead_rows,
)
from evoformer.kernels.kernel import Kernel, by_name_only, forward_mode
from evoformer.kernels.parts import AttentionParts

WIDTHS = (16, 32, 64, 128)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None) -> Tensor:
    """As `core.py` says."""
    from trifast import triangle_attention

    B, rows, N_head, N, _ = q.shape
    bias = q.new_zeros(B, N_head, N, N) if bias is None else bias[:, 0].to(q.dtype).expand(B, -1, -1, -1)
    hidden = torch.zeros(B, rows, N, dtype=torch.bool, device=q.device)
    if mask is not None:
        hidden = ~seen_keys(mask)[:, :, 0, 0]
    o = triangle_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), bias, hidden)
    return with_dead_rows(o.transpose(1, 2), v, mask)


def gated_attention(
    x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None, *, execution: Execution
) -> Tensor:
    """`reference.gated_attention`, all rows at once: a slice of them would not be square."""
    return around(attention)(x, parts, bias, mask, execution=replace(execution, slice_size=None))


def refuses(x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None) -> str | None:
    """Why the kernel cannot serve, or None."""
    _, rows, N, _ = x.shape
    return (
        absent("trifast")
        or not_on_cuda(x)
        or when(rows != N, f"it knows as many rows as positions, and x has {rows} rows of {N}")
        or other_width(parts, WIDTHS)
        or other_dtype(x, DTYPES)
        or forward_mode()
    )


KERNEL = Kernel("trifast", gated_attention, refuses, by_name_only)
