"""The operations that layers are made of, tensors to tensors, in plain PyTorch.

Softmax, masked means and sums over sequences run in float32 at least, whatever the precision of the inputs.
"""

import torch
from einops import einsum
from torch import Tensor

MASKED_LOGIT = -1e9  # DeepMind's; it replaces the logit, so a row without any key attends to all keys alike


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """Scaled dot-product attention; queries are scaled by 1/sqrt(c), the bias is not.

    AlphaFold 2 supplement, Algorithm 7, lines 5 and 6. Keys where the mask is 0 get no weight; a query all of whose
    keys are masked attends to all of them alike, as in DeepMind's code.

    Shapes:
        q: [*, N_head, N_q, c]
        k: [*, N_head, N_k, c]
        v: [*, N_head, N_k, c_v]
        bias: broadcasts to [*, N_head, N_q, N_k], added to the logits
        mask: broadcasts to [*, N_head, N_q, N_k], 0 hides a key
        returns: [*, N_head, N_q, c_v]
    """
    logits = at_least_float32(q * q.shape[-1] ** -0.5 @ k.transpose(-1, -2))
    if bias is not None:
        logits = logits + bias
    if mask is not None:
        logits = logits.masked_fill(mask == 0, MASKED_LOGIT)
    a = torch.softmax(logits, dim=-1)
    return a.to(v.dtype) @ v


def masked_mean(x: Tensor, mask: Tensor, axis: int, eps: float = 1e-10) -> Tensor:
    """Mean of x along an axis over the positions where the mask is 1; the axis stays, with length 1.

    The mask broadcasts to x. Without any such position the mean is 0, as in DeepMind's `mask_mean`.
    """
    wide = at_least_float32(x)
    mask = mask.to(wide.dtype)
    mean = (wide * mask).sum(axis, keepdim=True) / (mask.sum(axis, keepdim=True) + eps)
    return mean.to(x.dtype)


def outer_product_sum(a: Tensor, b: Tensor) -> Tensor:
    """Sum over sequences of the outer products of two columns: Algorithm 10, line 3, before the division.

    Shapes:
        a, b: [*, N_seq, N_res, c]
        returns: [*, N_res, N_res, c, c], float32 at least
    """
    with torch.autocast(a.device.type, enabled=False):
        return einsum(at_least_float32(a), at_least_float32(b), "... s i c, ... s j d -> ... i j c d")


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32, or as it is where it is wider already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
