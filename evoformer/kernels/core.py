"""Kernels that replace only what stands between the projections of gated attention.

Such a core is a function like `reference.attention`, called with

    q, k, v: [B, rows, N_head, N, c]
    bias: [B or 1, 1, N_head, N, N], or None
    mask: [B, rows, 1, 1, N], 0 hides a key, or None

and is made into a kernel by `around`. The fused functions of others differ in what a query without any key gets, and
let it leak into the gradient of the bias; `with_dead_rows` gives it what AlphaFold gives.
"""

import importlib.util
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from evoformer.kernels import reference
from evoformer.kernels.kernel import InSlices
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


def with_dead_rows(o: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """o, and the plain mean of the values in rows without any key.

    No gradient reaches the o of such a row, so it has to be finite and nothing else.
    """
    if mask is None:
        return o
    alive = (mask != 0).any(-1, keepdim=True)
    return torch.where(alive, o, reference.at_least_float32(v).mean(-2, keepdim=True).to(o.dtype))


def head_width(parts: AttentionParts) -> int:
    """Channels of a head."""
    return parts.q.out_features // parts.N_head


def absent(package: str) -> str | None:
    """The reason to refuse where a package is not installed."""
    return None if importlib.util.find_spec(package) else f"the package {package} is not installed"


def not_on_cuda(x: Tensor) -> str | None:
    """The reason to refuse a tensor on another device."""
    return None if x.device.type == "cuda" else f"it runs on CUDA, and x is on {x.device.type}"


def other_dtype(x: Tensor, dtypes: Sequence[torch.dtype]) -> str | None:
    """The reason to refuse the dtype in which the core would run."""
    dtype = x.dtype
    if torch.is_autocast_enabled(x.device.type) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(x.device.type)
    return None if dtype in dtypes else f"it runs in {dtype}, and the kernel knows {', '.join(map(str, dtypes))}"


def forward_mode() -> str | None:
    """The reason to refuse where a forward-mode derivative is being taken."""
    return "it has no forward-mode derivative" if forward_ad._current_level >= 0 else None
