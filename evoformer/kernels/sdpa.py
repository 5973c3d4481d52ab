"""PyTorch's fused attention as the core of gated attention: the bias is read by all rows, and no logits are stored.

The mask goes in as channels of queries and keys whose product lowers the logits of hidden keys: together with a bias
it would be a tensor of N_seq x N_head x N_res x N_res elements. It is never a bool mask, which would give 0, and NaN
behind it, to a query without any key.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from evoformer.kernels.core import around, seen_keys, when, with_dead_rows
from evoformer.kernels.kernel import Kernel, by_name_only, forward_mode
from evoformer.kernels.parts import AttentionParts

HIDING = 2.0**15  # its square, 1e9, hides a key; float16 and bfloat16 hold it
# PyTorch raises where none of these can serve, rather than make the logits.
FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
ALIGNMENT = 8  # of the channels, and of the bias's rows twice as much, or CUDA's kernels copy them


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None) -> Tensor:
    """As `core.py` says."""
    B, rows, c, values = *q.shape[:2], q.shape[-1], v
    scale = c**-0.5
    if c % ALIGNMENT:
        q, k, v = (F.pad(x, (0, -c % ALIGNMENT)) for x in (q, k, v))
    if mask is not None:
        hiding = F.pad(torch.full_like(q[..., :1], HIDING), (0, ALIGNMENT - 1))
        hidden = torch.where(seen_keys(mask).transpose(-1, -2), 0, -hiding)
        q, k, v = torch.cat([q, hiding], -1), torch.cat([k, hidden], -1), F.pad(v, (0, ALIGNMENT))
    if bias is not None:
        bias = _aligned(bias.detach().to(q.dtype))
    if bias is None or len(bias) == 1:
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        o = _fused(q, k, v, None if bias is None else bias[0], scale).unflatten(0, (B, rows))
    else:
        o = torch.stack([_fused(q[b], k[b], v[b], bias[b], scale) for b in range(B)])
    return with_dead_rows(o[..., :c], values, mask)


def refuses(x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None) -> str | None:
    """Why the kernel cannot serve in fused form, or None."""
    return (
        when(
            torch.is_grad_enabled() and bias is not None and bias.requires_grad,
            "the bias needs a gradient, and PyTorch's fused attention has none that is summed over the rows",
        )
        or when(x.numel() == 0, f"x is empty, {tuple(x.shape)}")
        or when(x.is_cuda and x.dtype == torch.float64, "PyTorch's fused attention on CUDA knows float32 and less")
        or forward_mode()
    )


def _fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """Attention of [rows, N_head, N, c] with a bias [1, N_head, N, N] that no row copies."""
    if bias is not None:
        bias = bias.expand(len(q), -1, -1, -1)
    with sdpa_kernel(FUSED):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def _aligned(bias: Tensor) -> Tensor:
    """The bias, its rows far enough apart in memory that none has to be copied for it."""
    N = bias.shape[-1]
    padding = -N % (2 * ALIGNMENT)
    return F.pad(bias, (0, padding))[..., :N] if padding else bias


KERNEL = Kernel("sdpa", around(attention), refuses, by_name_only)
