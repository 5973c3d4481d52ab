"""The extra-MSA stack: Algorithm 18, global column attention and narrow heads, and no extra sequence at all."""

import pytest
import torch
from oracles import algorithm_18, evoformer_block, over_batch, redrawn
from torch import Tensor
from torch.testing import assert_close

from evoformer import ExtraMSABlock, ExtraMSAStack, MSAColumnAttention, MSAColumnGlobalAttention

N_extra, N_res, c_e, c_z = 4, 5, 7, 6
SMALL = {"c_msa_att": 3, "N_head_msa": 2, "c_opm": 3, "c_tri_mul": 5, "c_tri_att": 2, "N_head_tri": 3}


def draw(*batch: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """e, z and their masks; the last row, and all pairs of the first residue, are masked wholly."""
    e, z = torch.randn(*batch, N_extra, N_res, c_e).double(), torch.randn(*batch, N_res, N_res, c_z).double()
    extra_msa_mask, pair_mask = torch.rand(*batch, N_extra, N_res) > 0.3, torch.rand(*batch, N_res, N_res) > 0.3
    extra_msa_mask[..., -1, :] = False
    pair_mask[..., 0, :] = False
    return e, z, extra_msa_mask, pair_mask


@pytest.mark.parametrize(
    ("opm_first", "batch", "N_block"), [(False, (), 2), (True, (), 2), (False, (2,), 1), (True, (1, 2), 1)]
)
def test_the_stack_is_algorithm_18(opm_first: bool, batch: tuple[int, ...], N_block: int) -> None:
    stack = redrawn(ExtraMSAStack(c_e, c_z, N_block, opm_first=opm_first, **SMALL), std=0.3)
    inputs = draw(*batch)
    assert_close(stack(*inputs), over_batch(algorithm_18, stack, len(batch), *inputs))


def test_a_block_returns_e_and_z() -> None:
    block, inputs = redrawn(ExtraMSABlock(c_e, c_z, **SMALL), std=0.3), draw()
    for ours, expected in zip(block(*inputs), evoformer_block(block, *inputs), strict=True):
        assert_close(ours, expected)


def test_masks_may_be_given_by_name() -> None:
    stack, (e, z, extra_msa_mask, pair_mask) = redrawn(ExtraMSAStack(c_e, c_z, 1, **SMALL)), draw()
    named = stack(e, z, extra_msa_mask=extra_msa_mask, pair_mask=pair_mask)
    assert_close(named, stack(e, z, extra_msa_mask, pair_mask))


def test_column_attention_is_global_with_heads_of_8_unless_asked() -> None:
    block = ExtraMSABlock()
    assert isinstance(block.msa_att_col, MSAColumnGlobalAttention)
    assert (block.msa_att_col.global_attention.c, block.msa_att_row.mha.c) == (8, 8)
    assert isinstance(ExtraMSABlock(c_e, c_z, **SMALL, column_attention="full").msa_att_col, MSAColumnAttention)


def test_a_fresh_stack_returns_z_as_it_is() -> None:
    e, z, *masks = draw()
    assert torch.equal(ExtraMSAStack(c_e, c_z, 2, **SMALL).double()(e, z, *masks), z)


def test_without_extra_sequences_z_stays_finite() -> None:
    stack, (e, z, extra_msa_mask, pair_mask) = redrawn(ExtraMSAStack(c_e, c_z, 2, **SMALL)), draw()
    assert stack(e[:0], z, extra_msa_mask[:0], pair_mask).isfinite().all()
    assert_close(stack(e[:0], z, extra_msa_mask[:0], pair_mask), stack(e[:0], z, None, pair_mask))
