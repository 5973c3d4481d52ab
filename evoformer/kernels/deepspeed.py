"""DeepSpeed's DS4Sci_EvoformerAttention as the core of gated attention.

It takes q, k, v [B, rows, N, N_head, c] in float16 or bfloat16 and a list of two biases, each added to the logits and
None where there is none: [B, rows, 1, 1, N], which the mask becomes, and [B, 1, N_head, N, N]. It is compiled on first
use, with nvcc and CUTLASS. The gradient of its bias adds up in no fixed order.
"""

import os
import shutil

import torch
from torch import Tensor

from evoformer.kernels.core import (
    absent,
    around,
    head_width,
    not_on_cuda,
    other_dtype,
    seen_keys,
    when,
    with_dead_rows,
)
from evoformer.kernels.kernel import Kernel, by_name_only, forward_mode
from evoformer.kernels.parts import AttentionParts
from evoformer.kernels.reference import MASKED_LOGIT

WIDEST = 64  # head that it has a backward pass for
SHORTEST = 17  # row
DTYPES = (torch.float16, torch.bfloat16)


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None) -> Tensor:
    """As `core.py` says."""
    from deepspeed.ops.deepspeed4science import DS4Sci_EvoformerAttention

    masked = None
    if mask is not None:
        lowest = max(MASKED_LOGIT, torch.finfo(q.dtype).min)
        masked = q.new_zeros(mask.shape).masked_fill(~seen_keys(mask), lowest)
    if bias is not None:
        bias = bias.to(q.dtype).expand(len(q), -1, -1, -1, -1)
    o = DS4Sci_EvoformerAttention(q.transpose(2, 3), k.transpose(2, 3), v.transpose(2, 3), [masked, bias])
    return with_dead_rows(o.transpose(2, 3), v, mask)


def refuses(x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None) -> str | None:
    """Why the kernel cannot serve, or None."""
    N, c = x.shape[2], head_width(parts)
    return (
        absent("deepspeed")
        or not_on_cuda(x)
        or other_dtype(x, DTYPES)
        or when(N < SHORTEST, f"rows have {N} positions, and it knows {SHORTEST} and more")
        or when(c > WIDEST and torch.is_grad_enabled(), f"the head width is {c}, and gradients stop at {WIDEST}")
        or _not_compilable()
        or forward_mode()
    )


def _not_compilable() -> str | None:
    if shutil.which("nvcc") is None and not os.environ.get("CUDA_HOME"):
        return absent("deepspeed.ops.evoformer_attn_op") and "nvcc, which compiles it on first use, is not found"
    return None


KERNEL = Kernel("deepspeed", around(attention), refuses, by_name_only)
