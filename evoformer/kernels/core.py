"""Kernels that replace only what stands between the projections of gated attention.

Such a core is a function like `reference.attention`, called with

    q, k, v: [B, rows, N_head, N, c]
    bias: [B or 1, 1, N_head, N, N], or None
    mask: [B, rows, 1, 1, N], 0 hides a key, or None

and is made into a kernel by `around`. The fused functions of others give a query without any key 0 or what they
please, and its gradient to the bias. So they see a mask in which there is none, `seen_keys`, and `with_dead_rows`
puts in what AlphaFold gives.
"""

import importlib.util
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from evoformer.kernels import reference
from evoformer.kernels.kernel import InSlices, compute_dtype
from evoformer.kernels.parts import AttentionParts
from evoformer.kernels.reference import ALL

Core = Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor | None], Tensor]


def around(core: Core) -> InSlices:
    """`reference.gated_attention` with another core."""

    def gated_attention(
        x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None, rows: slice = ALL
    ) -> Tensor:
        return reference.gated_attention(x, parts, bias, mask, rows, core)

    return InSlices(gated_attention, rows_axis=1, axis=1)


def seen_keys(mask: Tensor) -> Tensor:
    """The mask as bool, with all keys seen in a row that has none."""
    seen = mask != 0
    return seen | ~seen.any(-1, keepdim=True)


def with_dead_rows(o: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """o, and in rows without any key the plain mean of the values; no gradient reaches the o of such a row."""
    if mask is None:
        return o
    alive = (mask != 0).any(-1, keepdim=True)
    return torch.where(alive, o, reference.at_least_float32(v).mean(-2, keepdim=True).to(o.dtype))


def head_width(parts: AttentionParts) -> int:
    """Channels of a head."""
    return parts.q.out_features // parts.N_head


def when(refused: bool, reason: str) -> str | None:
    """The reason, where it holds."""
    return reason if refused else None


def absent(package: str) -> str | None:
    """The reason to refuse where a package is not installed."""
    return when(importlib.util.find_spec(package) is None, f"the package {package} is not installed")


def not_on_cuda(x: Tensor) -> str | None:
    """The reason to refuse a tensor on another device."""
    return when(x.device.type != "cuda", f"it runs on CUDA, and x is on {x.device.type}")


def other_width(parts: AttentionParts, widths: Sequence[int]) -> str | None:
    """The reason to refuse the width of a head."""
    c = head_width(parts)
    return when(c not in widths, f"the head width is {c}, and it knows {', '.join(map(str, widths))}")


def other_dtype(x: Tensor, dtypes: Sequence[torch.dtype]) -> str | None:
    """The reason to refuse the dtype in which the core will run."""
    dtype = compute_dtype(x)
    return when(dtype not in dtypes, f"it runs in {dtype}, and the kernel knows {', '.join(map(str, dtypes))}")
