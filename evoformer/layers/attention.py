"""Gated and global multi-head attention along any axis of a tensor."""

import torch
from einops import rearrange
from torch import Tensor, nn

from evoformer import ops
from evoformer.layers.linear import Linear


class MultiHeadAttention(nn.Module):
    """Multi-head self-attention along one axis, plain or gated, with one key and value a head or one for all heads.

    The common part of Algorithms 7, 8, 13, 14 (gated) and 19 (gated and global) of the AlphaFold 2 supplement. With
    `gated=False, is_global=False, use_bias_for_embeddings=True` and `c = c_in // N_head` it is the textbook's.

    Global attention averages the query over the unmasked positions of the axis and has a single key and value head.

    Args:
        c_in: channels of x.
        c: channels of a head.
        N_head: number of heads.
        attn_dim: the axis to attend along, any but the last; a positive one counts in the tensor as given.
        gated: whether a sigmoid of x gates the output of each head.
        is_global: whether attention is global.
        use_bias_for_embeddings: whether the projections to queries, keys and values have a bias.
    """

    def __init__(
        self,
        c_in: int,
        c: int,
        N_head: int,
        attn_dim: int,
        gated: bool = False,
        is_global: bool = False,
        use_bias_for_embeddings: bool = False,
    ) -> None:
        super().__init__()
        if attn_dim == -1:
            raise ValueError("attn_dim is -1, the channels; attention runs along another axis")
        self.c = c
        self.N_head = N_head
        self.attn_dim = attn_dim
        self.gated = gated
        self.is_global = is_global

        c_kv = c if is_global else c * N_head
        self.linear_q = Linear(c_in, c * N_head, bias=use_bias_for_embeddings, init="glorot")
        self.linear_k = Linear(c_in, c_kv, bias=use_bias_for_embeddings, init="glorot")
        self.linear_v = Linear(c_in, c_kv, bias=use_bias_for_embeddings, init="glorot")
        if gated:
            self.linear_g = Linear(c_in, c * N_head, init="gating")
        self.linear_o = Linear(c * N_head, c_in, init="final")

    def prepare_qkv(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Move the attended axis next to the channels and split the heads.

        Shapes, before and after:
            q, k, v: [*, q/k/v, *, N_head * c] -> [*, N_head, q/k/v, c]
        """

        def split_heads(x: Tensor) -> Tensor:
            return rearrange(self._axis_last(x), "... n (h c) -> ... h n c", h=self.N_head)

        return split_heads(q), split_heads(k), split_heads(v)

    def prepare_qkv_global(
        self, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Average the query along the attended axis, over the unmasked positions, and split its heads.

        Shapes, before and after:
            q: [*, q, *, N_head * c] -> [*, N_head, 1, c]
            k, v: [*, k/v, *, c] -> [*, 1, k/v, c]
            attention_mask: [*, q]
        """
        q = self._axis_last(q)
        if attention_mask is None:
            q = ops.at_least_float32(q).mean(-2, keepdim=True).to(q.dtype)
        else:
            mask = _aligned(attention_mask, q.shape[:-2], q.shape[-2:-1], "attention_mask")
            q = ops.masked_mean(q, mask[..., None], axis=-2)
        q = rearrange(q, "... n (h c) -> ... h n c", h=self.N_head)
        k = rearrange(self._axis_last(k), "... n c -> ... 1 n c")
        v = rearrange(self._axis_last(v), "... n c -> ... 1 n c")
        return q, k, v

    def forward(self, x: Tensor, bias: Tensor | None = None, attention_mask: Tensor | None = None) -> Tensor:
        """Attend along `attn_dim`.

        In the shapes, the first `*` are all axes of x before the channels without `attn_dim`, in order. A bias or a
        mask may have only the leading ones of them; it then serves every index of the others.

        Shapes:
            x: [*, q, *, c_in]
            bias: [*, N_head, q, k], added to the logits
            attention_mask: [*, k], 0 hides a key
            returns: as x; without a gate, global attention returns length 1 along `attn_dim`

        Raises:
            ValueError: a bias or a mask does not fit, or x has no such axis.
        """
        axis = self._axis(x)
        q, k, v = self.linear_q(x), self.linear_k(x), self.linear_v(x)
        if self.is_global:
            q, k, v = self.prepare_qkv_global(q, k, v, attention_mask)
        else:
            q, k, v = self.prepare_qkv(q, k, v)
        batch, n_q, n_k = q.shape[:-3], q.shape[-2], k.shape[-2]
        if bias is not None:
            bias = _aligned(bias, batch, (self.N_head, n_q, n_k), "bias")
        if attention_mask is not None:
            attention_mask = _aligned(attention_mask, batch, (n_k,), "attention_mask")[..., None, None, :]

        o = ops.attention(q, k, v, bias, attention_mask)
        # The heads are flattened while they stand beside the queries; only then does the axis go back.
        o = rearrange(o, "... h n c -> ... n (h c)").movedim(-2, axis)
        if self.gated:
            o = torch.sigmoid(self.linear_g(x)) * o
        return self.linear_o(o)

    def _axis(self, x: Tensor) -> int:
        """`attn_dim` as a negative number."""
        axis = self.attn_dim - x.ndim if self.attn_dim >= 0 else self.attn_dim
        if not -x.ndim <= axis < -1:
            raise ValueError(f"attn_dim is {self.attn_dim}, x has shape {tuple(x.shape)}: no axis to attend along")
        return axis

    def _axis_last(self, x: Tensor) -> Tensor:
        """x with `attn_dim` next to the channels."""
        return x.movedim(self._axis(x), -2)


def _aligned(x: Tensor, batch: torch.Size, tail: tuple[int, ...], name: str) -> Tensor:
    """View x, [leading part of batch, *tail], so that it broadcasts to [*batch, *tail] from the left.

    Broadcasting from the right would pair a batch axis with N_seq where the two lengths happen to agree.
    """
    n_lead = x.ndim - len(tail)
    fits = (
        0 <= n_lead <= len(batch)
        and x.shape[n_lead:] == tail
        and all(size in (1, wanted) for size, wanted in zip(x.shape, batch[:n_lead], strict=False))
    )
    if not fits:
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}, expected {(*batch, *tail)} or a leading part of its batch"
        )
    missing = (1,) * (len(batch) - n_lead)
    return x.reshape(*x.shape[:n_lead], *missing, *x.shape[n_lead:])
