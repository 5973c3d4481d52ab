"""Attention on the MSA: along rows with a pair bias, along columns, and along columns with a global query."""

from torch import Tensor, nn

from evoformer import ops
from evoformer.execution import Execution
from evoformer.layers.attention import MultiHeadAttention
from evoformer.layers.linear import Linear
from evoformer.shapes import MSA, MSAMask, Pair, check_mask


class MSARowAttentionWithPairBias(nn.Module):
    """Self-attention along each row of the MSA, biased by the pair representation.

    AlphaFold 2 supplement, Algorithm 7. Returns the update; the block adds it.

    Args:
        c_m: channels of the MSA.
        c_z: channels of the pair representation.
        c: channels of a head.
        N_head: number of heads.
    """

    execution = Execution()

    def __init__(self, c_m: int, c_z: int, c: int = 32, N_head: int = 8) -> None:
        super().__init__()
        self.layer_norm_m = nn.LayerNorm(c_m)
        self.layer_norm_z = nn.LayerNorm(c_z)
        self.linear_z = Linear(c_z, N_head, bias=False, init="normal")
        self.mha = MultiHeadAttention(c_m, c, N_head, attn_dim=-2, gated=True)

    def forward(self, m: MSA, z: Pair, msa_mask: MSAMask | None = None) -> MSA:
        """The update of m.

        Shapes:
            m: [*, N_seq, N_res, c_m]
            z: [*, N_res, N_res, c_z]
            msa_mask: [*, N_seq, N_res], 1 where the residue exists
            returns: [*, N_seq, N_res, c_m]

        Raises:
            ValueError: m and z differ in their number of residues, or the mask does not fit.
        """
        if z.shape[-3:-1] != (m.shape[-2], m.shape[-2]):
            raise ValueError(f"m has {m.shape[-2]} residues, z has {z.shape[-3]} x {z.shape[-2]}")
        if z.shape[:-3] != m.shape[:-3][: z.ndim - 3]:
            raise ValueError(f"m has shape {tuple(m.shape)}, z has {tuple(z.shape)}: their batch axes differ")
        check_mask(msa_mask, m, "msa_mask", "m")
        bias = ops.pair_bias(z, self.layer_norm_z, self.linear_z, self.execution)
        return self.mha.attend(m, self.layer_norm_m, bias, msa_mask)


class MSAColumnAttention(nn.Module):
    """Self-attention along each column of the MSA.

    AlphaFold 2 supplement, Algorithm 8. Returns the update; the block adds it.

    Args:
        c_m: channels of the MSA.
        c: channels of a head.
        N_head: number of heads.
    """

    def __init__(self, c_m: int, c: int = 32, N_head: int = 8) -> None:
        super().__init__()
        self.layer_norm_m = nn.LayerNorm(c_m)
        self.mha = MultiHeadAttention(c_m, c, N_head, attn_dim=-3, gated=True)

    def forward(self, m: MSA, msa_mask: MSAMask | None = None) -> MSA:
        """The update of m.

        Shapes:
            m: [*, N_seq, N_res, c_m]
            msa_mask: [*, N_seq, N_res], 1 where the residue exists
            returns: [*, N_seq, N_res, c_m]

        Raises:
            ValueError: the mask does not fit.
        """
        return self.mha.attend(m, self.layer_norm_m, attention_mask=_column_mask(msa_mask, m))


class MSAColumnGlobalAttention(nn.Module):
    """Global self-attention along each column of the extra MSA: one query a column, one key and value head.

    AlphaFold 2 supplement, Algorithm 19. Returns the update; the block adds it.

    Args:
        c_m: channels of the MSA.
        c: channels of a head.
        N_head: number of heads.
    """

    def __init__(self, c_m: int, c: int = 8, N_head: int = 8) -> None:
        super().__init__()
        self.layer_norm_m = nn.LayerNorm(c_m)
        self.global_attention = MultiHeadAttention(c_m, c, N_head, attn_dim=-3, gated=True, is_global=True)

    def forward(self, m: MSA, msa_mask: MSAMask | None = None) -> MSA:
        """The update of m.

        Shapes:
            m: [*, N_seq, N_res, c_m]
            msa_mask: [*, N_seq, N_res], 1 where the residue exists
            returns: [*, N_seq, N_res, c_m]

        Raises:
            ValueError: the mask does not fit.
        """
        return self.global_attention.attend(m, self.layer_norm_m, attention_mask=_column_mask(msa_mask, m))


def _column_mask(msa_mask: Tensor | None, m: Tensor) -> Tensor | None:
    """The mask of the keys of column attention, [*, N_res, N_seq]."""
    check_mask(msa_mask, m, "msa_mask", "m")
    return None if msa_mask is None else msa_mask.transpose(-1, -2)
