"""The Evoformer: one block, and the stack of them."""

from typing import Literal, TypedDict, Unpack, get_args

from torch import nn

from evoformer.blocks.pair import PairStack
from evoformer.execution import Execution, added, recomputed
from evoformer.layers.dropout import DropoutRowwise
from evoformer.layers.linear import Linear
from evoformer.layers.msa_attention import MSAColumnAttention, MSAColumnGlobalAttention, MSARowAttentionWithPairBias
from evoformer.layers.outer_product_mean import OuterProductMean
from evoformer.layers.transition import MSATransition
from evoformer.shapes import MSA, MSAMask, Pair, PairMask, Single

ColumnAttention = Literal["full", "global"]


class BlockOptions(TypedDict, total=False):
    """The keyword arguments of a block, which a stack passes on; `EvoformerBlock` says what they mean."""

    c_msa_att: int
    N_head_msa: int
    c_opm: int
    c_tri_mul: int
    c_tri_att: int
    N_head_tri: int
    n_msa_transition: int
    n_pair_transition: int
    p_msa: float
    p_pair: float
    column_attention: ColumnAttention
    opm_first: bool
    opm_centered: bool


class EvoformerBlock(nn.Module):
    """One block of the Evoformer.

    AlphaFold 2 supplement, Algorithm 6. The defaults are the monomer model's; multimer models take the outer product
    mean first.

    Args:
        c_m: channels of the MSA.
        c_z: channels of the pair representation.
        c_msa_att: channels of a head of the MSA attentions.
        N_head_msa: heads of the MSA attentions.
        c_opm: channels of the outer product mean.
        c_tri_mul: hidden channels of the triangle multiplications.
        c_tri_att: channels of a head of the triangle attentions.
        N_head_tri: heads of the triangle attentions; 0 leaves triangle attention out, for small trunks.
        n_msa_transition: factor of the hidden channels of the MSA transition.
        n_pair_transition: factor of the hidden channels of the pair transition.
        p_msa: dropout probability of the row attention.
        p_pair: dropout probability of the triangle updates.
        column_attention: "full", or the "global" one of the extra-MSA stack.
        opm_first: whether the outer product mean comes first, as in AlphaFold-Multimer.
        opm_centered: whether the outer product mean centres its columns.

    Raises:
        ValueError: the column attention is neither of the two.
    """

    execution = Execution()

    def __init__(
        self,
        c_m: int = 256,
        c_z: int = 128,
        *,
        c_msa_att: int = 32,
        N_head_msa: int = 8,
        c_opm: int = 32,
        c_tri_mul: int = 128,
        c_tri_att: int = 32,
        N_head_tri: int = 4,
        n_msa_transition: int = 4,
        n_pair_transition: int = 4,
        p_msa: float = 0.15,
        p_pair: float = 0.25,
        column_attention: ColumnAttention = "full",
        opm_first: bool = False,
        opm_centered: bool = False,
    ) -> None:
        super().__init__()
        if column_attention not in get_args(ColumnAttention):
            raise ValueError(f"column_attention is {column_attention!r}, expected one of full, global")
        self.opm_first = opm_first
        self.msa_att_row = MSARowAttentionWithPairBias(c_m, c_z, c_msa_att, N_head_msa)
        self.dropout_row = DropoutRowwise(p_msa)
        column = MSAColumnAttention if column_attention == "full" else MSAColumnGlobalAttention
        self.msa_att_col = column(c_m, c_msa_att, N_head_msa)
        self.msa_transition = MSATransition(c_m, n_msa_transition)
        self.outer_product_mean = OuterProductMean(c_m, c_z, c_opm, centered=opm_centered)
        self.pair_stack = PairStack(
            c_z,
            c_tri_mul=c_tri_mul,
            c_tri_att=c_tri_att,
            N_head_tri=N_head_tri,
            n_pair_transition=n_pair_transition,
            p_pair=p_pair,
        )

    def forward(
        self, m: MSA, z: Pair, msa_mask: MSAMask | None = None, pair_mask: PairMask | None = None
    ) -> tuple[MSA, Pair]:
        """The new m and z.

        Shapes:
            m: [*, N_seq, N_res, c_m]
            z: [*, N_res, N_res, c_z]
            msa_mask: [*, N_seq, N_res], 1 where the residue exists
            pair_mask: [*, N_res, N_res], 1 where both residues exist
            returns: m and z, shapes as given

        Raises:
            ValueError: m and z differ in their number of residues, or a mask does not fit.
        """
        if z.shape[-3:-1] != (m.shape[-2], m.shape[-2]):
            raise ValueError(f"m has {m.shape[-2]} residues, z has {z.shape[-3]} x {z.shape[-2]}")
        run = recomputed(self._updated) if self.execution.recompute == "block" else self._updated
        return run(m, z, msa_mask, pair_mask)

    def _updated(self, m: MSA, z: Pair, msa_mask: MSAMask | None, pair_mask: PairMask | None) -> tuple[MSA, Pair]:
        if self.opm_first:
            z = z + self.outer_product_mean(m, msa_mask)
        m = m + self.dropout_row(self.msa_att_row(m, z, msa_mask))  # a new m, which may be changed in place
        m = added(m, self.msa_att_col(m, msa_mask), self.execution)
        m = added(m, self.msa_transition(m), self.execution)
        if not self.opm_first:
            z = z + self.outer_product_mean(m, msa_mask)
        return m, self.pair_stack(z, pair_mask)


class EvoformerStack(nn.Module):
    """Blocks of the Evoformer, and the single representation from the first row of the MSA.

    AlphaFold 2 supplement, Algorithm 6.

    Args:
        c_m: channels of the MSA.
        c_z: channels of the pair representation.
        N_block: number of blocks.
        c_s: channels of the single representation.
        **block: keyword arguments of `EvoformerBlock`.
    """

    def __init__(self, c_m: int, c_z: int, N_block: int, c_s: int = 384, **block: Unpack[BlockOptions]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EvoformerBlock(c_m, c_z, **block) for _ in range(N_block))
        self.linear = Linear(c_m, c_s)

    def forward(
        self, m: MSA, z: Pair, msa_mask: MSAMask | None = None, pair_mask: PairMask | None = None
    ) -> tuple[MSA, Pair, Single]:
        """Run all blocks.

        Shapes:
            m: [*, N_seq, N_res, c_m]
            z: [*, N_res, N_res, c_z]
            msa_mask: [*, N_seq, N_res], 1 where the residue exists
            pair_mask: [*, N_res, N_res], 1 where both residues exist
            returns: m and z, shapes as given, and s [*, N_res, c_s]
        """
        for block in self.blocks:
            m, z = block(m, z, msa_mask, pair_mask)
        return m, z, self.linear(m[..., 0, :, :])
