"""Gated and global multi-head attention along any axis of a tensor."""

import math

import torch
from torch import Tensor, nn

from evoformer import ops
from evoformer.execution import Execution
from evoformer.kernels.parts import AttentionParts, Norm
from evoformer.layers.linear import Linear

_AS_GIVEN = nn.Identity()


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

    execution = Execution()

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
        q, k, v = (ops.split_heads(self._axis_last(x), self.N_head) for x in (q, k, v))
        return q, k, v

    def prepare_qkv_global(
        self, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Average the query along the attended axis, over the unmasked positions, and split its heads.

        Shapes, before and after:
            q: [*, q, *, N_head * c] -> [*, N_head, 1, c]
            k, v: [*, k/v, *, c] -> [*, 1, k/v, c]
            attention_mask: [*, q]
        """
        q, k, v = (self._axis_last(x) for x in (q, k, v))
        if attention_mask is not None:
            attention_mask = _aligned(attention_mask, q.shape[:-2], q.shape[-2:-1], "attention_mask")
        q = ops.split_heads(ops.mean_query(q, attention_mask), self.N_head)
        return q, k[..., None, :, :], v[..., None, :, :]

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
        return self.attend(x, _AS_GIVEN, bias, attention_mask)

    def attend(self, x: Tensor, norm: Norm, bias: Tensor | None = None, attention_mask: Tensor | None = None) -> Tensor:
        """`forward` of norm(x), with the norm a part of the operation; shapes and errors are the same."""
        axis = self._axis(x)
        x = self._axis_last(x)
        batch, N = x.shape[:-2], x.shape[-2]
        # All axes that the bias has come first, as one; the rows, which share it, follow.
        n_lead = max(len(batch) - 1, 0) if bias is None else bias.ndim - 3
        if bias is not None:
            _check_leads(bias, batch, (self.N_head, 1 if self.is_global else N, N), "bias")
            if all(size == 1 for size in bias.shape[:n_lead]):
                bias, n_lead = bias.reshape(1, *bias.shape[-3:]), 0
            else:
                bias = bias.expand(*batch[:n_lead], *bias.shape[-3:]).flatten(0, n_lead - 1)
        B, rows = math.prod(batch[:n_lead]), math.prod(batch[n_lead:])
        if attention_mask is not None:
            attention_mask = _aligned(attention_mask, batch, (N,), "attention_mask")
            attention_mask = attention_mask.expand(*batch, N).reshape(B, rows, N)

        op = ops.global_attention if self.is_global else ops.gated_attention
        update = op(x.reshape(B, rows, *x.shape[-2:]), self._parts(norm), bias, attention_mask, self.execution)
        return update.reshape(*batch, *update.shape[-2:]).movedim(-2, axis)

    def _parts(self, norm: Norm) -> AttentionParts:
        return AttentionParts(
            norm=norm,
            q=self.linear_q,
            k=self.linear_k,
            v=self.linear_v,
            g=self.linear_g if self.gated else None,
            o=self.linear_o,
            N_head=self.N_head,
        )

    def _axis(self, x: Tensor) -> int:
        """`attn_dim` as a negative number."""
        axis = self.attn_dim - x.ndim if self.attn_dim >= 0 else self.attn_dim
        if not -x.ndim <= axis < -1:
            raise ValueError(f"attn_dim is {self.attn_dim}, x has shape {tuple(x.shape)}: no axis to attend along")
        return axis

    def _axis_last(self, x: Tensor) -> Tensor:
        """x with `attn_dim` next to the channels."""
        return x.movedim(self._axis(x), -2)


def _check_leads(x: Tensor, batch: torch.Size, tail: tuple[int, ...], name: str) -> None:
    """Raise a ValueError unless x is [leading part of batch, *tail]; an axis of batch may have length 1 in x."""
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


def _aligned(x: Tensor, batch: torch.Size, tail: tuple[int, ...], name: str) -> Tensor:
    """View x, [leading part of batch, *tail], so that it broadcasts to [*batch, *tail] from the left.

    Broadcasting from the right would pair a batch axis with N_seq where the two lengths happen to agree.
    """
    _check_leads(x, batch, tail, name)
    n_lead = x.ndim - len(tail)
    missing = (1,) * (len(batch) - n_lead)
    return x.reshape(*x.shape[:n_lead], *missing, *x.shape[n_lead:])
