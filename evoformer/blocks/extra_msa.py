"""The extra-MSA stack: small blocks with global column attention, for many sequences."""

from typing import Unpack

from torch import nn

from evoformer.blocks.evoformer import BlockOptions, EvoformerBlock
from evoformer.shapes import ExtraMSA, ExtraMSAMask, Pair, PairMask


class ExtraMSABlock(EvoformerBlock):
    """One block of the extra-MSA stack: an Evoformer block with global column attention and narrow MSA heads.

    AlphaFold 2 supplement, Algorithm 18.

    Args:
        c_e: channels of the extra MSA.
        c_z: channels of the pair representation.
        **block: keyword arguments of `EvoformerBlock`; `c_msa_att` defaults to 8, `column_attention` to "global".
    """

    def __init__(self, c_e: int = 64, c_z: int = 128, **block: Unpack[BlockOptions]) -> None:
        options: BlockOptions = {"c_msa_att": 8, "column_attention": "global"}
        options.update(block)
        super().__init__(c_e, c_z, **options)

    def forward(
        self, e: ExtraMSA, z: Pair, extra_msa_mask: ExtraMSAMask | None = None, pair_mask: PairMask | None = None
    ) -> tuple[ExtraMSA, Pair]:
        """The new e and z.

        Shapes:
            e: [*, N_extra, N_res, c_e]
            z: [*, N_res, N_res, c_z]
            extra_msa_mask: [*, N_extra, N_res], 1 where the residue exists
            pair_mask: [*, N_res, N_res], 1 where both residues exist
            returns: e and z, shapes as given

        Raises:
            ValueError: e and z differ in their number of residues, or a mask does not fit.
        """
        return super().forward(e, z, extra_msa_mask, pair_mask)


class ExtraMSAStack(nn.Module):
    """Blocks of the extra-MSA stack. AlphaFold 2 supplement, Algorithm 18.

    Args:
        c_e: channels of the extra MSA.
        c_z: channels of the pair representation.
        N_block: number of blocks.
        **block: keyword arguments of `ExtraMSABlock`.
    """

    def __init__(self, c_e: int, c_z: int, N_block: int, **block: Unpack[BlockOptions]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ExtraMSABlock(c_e, c_z, **block) for _ in range(N_block))

    def forward(
        self, e: ExtraMSA, z: Pair, extra_msa_mask: ExtraMSAMask | None = None, pair_mask: PairMask | None = None
    ) -> Pair:
        """Run all blocks; only the pair representation goes on from here.

        Shapes:
            e: [*, N_extra, N_res, c_e]
            z: [*, N_res, N_res, c_z]
            extra_msa_mask: [*, N_extra, N_res], 1 where the residue exists
            pair_mask: [*, N_res, N_res], 1 where both residues exist
            returns: z, shape as given
        """
        for block in self.blocks:
            e, z = block(e, z, extra_msa_mask, pair_mask)
        return z
