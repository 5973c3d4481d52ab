"""Every op in plain PyTorch, in the lines of the AlphaFold 2 supplement: the definition of correct.

Softmax, masked means and sums over sequences run in float32 at least, whatever the precision of the inputs. `rows` are
the rows of the result that are computed, so that a large one can be made in slices.
"""

from collections.abc import Callable

import torch
from einops import einsum, rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from evoformer.kernels.parts import AttentionParts, Norm, OuterProductParts, TransitionParts, TriangleParts

MASKED_LOGIT = -1e9  # DeepMind's; it replaces the logit, so a row without any key attends to all keys alike
ALL = slice(None)


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


def gated_attention(
    x: Tensor,
    parts: AttentionParts,
    bias: Tensor | None,
    mask: Tensor | None,
    rows: slice = ALL,
    core: Callable[..., Tensor] | None = None,
) -> Tensor:
    """Multi-head attention along every row: Algorithms 7, 8, 13 and 14 after the pair bias; the gate is optional.

    A core stands in for `attention`; `core.py` says what it is called with.

    Shapes:
        x: [B, rows, N, c_in]
        bias: [B or 1, N_head, N, N], one for all rows
        mask: [B, rows, N], 0 hides a key
        returns: [B, rows, N, c_out]
    """
    x = parts.norm(x[:, rows])
    q, k, v = (split_heads(part(x), parts.N_head) for part in (parts.q, parts.k, parts.v))
    if bias is not None:
        bias = bias[:, None]
    if mask is not None:
        mask = mask[:, rows, None, None, :]
    return gated(x, (core or attention)(q, k, v, bias, mask), parts)


def global_attention(
    x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None, rows: slice = ALL
) -> Tensor:
    """Global attention along every row, one query for all positions: Algorithm 19; the gate is optional.

    Shapes:
        x: [B, rows, N, c_in]
        bias: [B or 1, N_head, 1, N], one for all rows
        mask: [B, rows, N], 0 hides a key, and a position to the query
        returns: [B, rows, N, c_out]; without a gate, [B, rows, 1, c_out]
    """
    x = parts.norm(x[:, rows])
    if bias is not None:
        bias = bias[:, None]
    if mask is not None:
        mask = mask[:, rows]
    q = split_heads(mean_query(parts.q(x), mask), parts.N_head)
    k, v = parts.k(x)[..., None, :, :], parts.v(x)[..., None, :, :]
    return gated(x, attention(q, k, v, bias, None if mask is None else mask[..., None, None, :]), parts)


def split_heads(x: Tensor, N_head: int) -> Tensor:
    """[*, N, N_head * c] to [*, N_head, N, c]."""
    return rearrange(x, "... n (h c) -> ... h n c", h=N_head)


def mean_query(q: Tensor, mask: Tensor | None) -> Tensor:
    """The mean of q [*, N, c] over the positions where the mask [*, N] is 1: [*, 1, c]."""
    if mask is None:
        return at_least_float32(q).mean(-2, keepdim=True).to(q.dtype)
    return masked_mean(q, mask[..., None], axis=-2)


def gated(x: Tensor, o: Tensor, parts: AttentionParts) -> Tensor:
    """The heads' outputs o [*, N_head, N_q, c], each through its gate where there is one, and projected."""
    o = rearrange(o, "... h n c -> ... n (h c)")
    if parts.g is not None:
        o = torch.sigmoid(parts.g(x)) * o
    return parts.o(o)


def pair_bias(z: Tensor, norm: Norm, linear: nn.Linear, rows: slice = ALL) -> Tensor:
    """What a pair adds to the logits of each head: Algorithm 7, line 3, and Algorithms 13 and 14, line 3.

    Shapes:
        z: [B, N_res, N_res, c_z]
        linear: from c_z to N_head channels
        returns: [B, N_head, rows, N_res]
    """
    return rearrange(linear(norm(z[:, rows])), "b i j h -> b h i j")


def outer_product_mean(m: Tensor, parts: OuterProductParts, mask: Tensor | None, rows: slice = ALL) -> Tensor:
    """The mean over sequences of the outer product of two columns, projected: Algorithm 10.

    Shapes:
        m: [B, N_seq, N_res, c_m]
        mask: [B, N_seq, N_res], 1 where the residue exists
        returns: [B, rows, N_res, c_z]
    """
    if mask is None:
        mask = m.new_ones(m.shape[:-1])
    m = parts.norm(m)
    mask = mask[..., None].to(m.dtype)
    if parts.centered:
        m = m - masked_mean(m, mask, axis=-3)
    a = parts.a(m[:, :, rows]) * mask[:, :, rows]
    b = parts.b(m) * mask
    outer = rearrange(outer_product_sum(a, b), "... i j c d -> ... i j (c d)")

    norm = parts.eps + outer_product_sum(mask[:, :, rows], mask)[..., 0]
    # DISCREPANCY: the supplement takes the mean, then projects; DeepMind's code projects the sum, bias included,
    # and divides the result, so we divide the bias too. The sum is divided first, so that it fits float16.
    z = F.linear((outer / norm).to(a.dtype), parts.out.weight)
    return (z + parts.out.bias / norm).to(a.dtype)


def triangle_multiplication(z: Tensor, parts: TriangleParts, mask: Tensor | None, rows: slice = ALL) -> Tensor:
    """Update of an edge from the two other edges of every triangle: Algorithms 11 (outgoing) and 12 (incoming).

    Shapes:
        z: [B, N_res, N_res, c_z]
        mask: [B, N_res, N_res], 1 where both residues exist
        returns: [B, rows, N_res, c_z]
    """
    z = parts.norm_in(z)
    a = torch.sigmoid(parts.a_g(z)) * parts.a_p(z)
    b = torch.sigmoid(parts.b_g(z)) * parts.b_p(z)
    if mask is not None:
        mask = mask[..., None].to(a.dtype)
        a, b = a * mask, b * mask
    if parts.outgoing:
        x = einsum(a[:, rows], b, "b i k c, b j k c -> b i j c")
    else:
        x = einsum(a[:, :, rows], b, "b k i c, b k j c -> b i j c")
    return torch.sigmoid(parts.g(z[:, rows])) * parts.z(parts.norm_out(x))


def transition(x: Tensor, parts: TransitionParts, rows: slice = ALL) -> Tensor:
    """A two-layer perceptron at each position: Algorithms 9 and 15. x is [rows, N, c]."""
    hidden = torch.relu(parts.linear_1(parts.norm(x[rows])))
    return parts.linear_2(hidden)


def outer_product_sum(a: Tensor, b: Tensor) -> Tensor:
    """Sum over sequences of the outer products of two columns: Algorithm 10, line 3, before the division.

    Shapes:
        a: [*, N_seq, i, c]
        b: [*, N_seq, j, d]
        returns: [*, i, j, c, d], float32 at least
    """
    with torch.autocast(a.device.type, enabled=False):
        return einsum(at_least_float32(a), at_least_float32(b), "... s i c, ... s j d -> ... i j c d")


def masked_mean(x: Tensor, mask: Tensor, axis: int, eps: float = 1e-10) -> Tensor:
    """Mean of x along an axis over the positions where the mask is 1; the axis stays, with length 1.

    The mask broadcasts to x. Without any such position the mean is 0, as in DeepMind's `mask_mean`.
    """
    wide = at_least_float32(x)
    mask = mask.to(wide.dtype)
    mean = (wide * mask).sum(axis, keepdim=True) / (mask.sum(axis, keepdim=True) + eps)
    return mean.to(x.dtype)


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32, or as it is where it is wider already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
