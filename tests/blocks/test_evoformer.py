"""The Evoformer: Algorithm 6 line by line, what padding may do, dropout, initialisation and options."""

import pytest
import torch
from oracles import algorithm_6, evoformer_block, pair_stack, redrawn
from torch import Tensor
from torch.testing import assert_close

from evoformer import EvoformerBlock, EvoformerStack, PairStack

N_seq, N_res, c_m, c_z, c_s = 3, 5, 14, 6, 8
SMALL = {"c_msa_att": 4, "N_head_msa": 2, "c_opm": 3, "c_tri_mul": 5, "c_tri_att": 2, "N_head_tri": 3}
OPTIONS = [
    pytest.param({}, id="monomer"),
    pytest.param({"opm_first": True}, id="multimer"),
    pytest.param({"column_attention": "global"}, id="global"),
    pytest.param({"opm_centered": True}, id="centred"),
    pytest.param({"N_head_tri": 0, "n_msa_transition": 2, "n_pair_transition": 3}, id="no triangle attention"),
]


def draw(*batch: int) -> tuple[Tensor, Tensor]:
    m, z = torch.randn(*batch, N_seq, N_res, c_m), torch.randn(*batch, N_res, N_res, c_z)
    return m.double(), z.double()


def draw_masks(*batch: int) -> tuple[Tensor, Tensor]:
    """Zeros and ones; the last row, and all pairs of the first residue, are masked wholly."""
    msa_mask, pair_mask = torch.rand(*batch, N_seq, N_res) > 0.3, torch.rand(*batch, N_res, N_res) > 0.3
    msa_mask[..., -1, :] = False
    pair_mask[..., 0, :] = False
    return msa_mask, pair_mask


@pytest.mark.parametrize("options", OPTIONS)
def test_a_block_is_the_lines_of_algorithm_6(options: dict) -> None:
    block = redrawn(EvoformerBlock(c_m, c_z, **{**SMALL, **options}), std=0.3)
    m, z = draw()
    masks = draw_masks()
    for ours, expected in zip(block(m, z, *masks), evoformer_block(block, m, z, *masks), strict=True):
        assert_close(ours, expected)
    for ours, expected in zip(block(m, z), evoformer_block(block, m, z), strict=True):
        assert_close(ours, expected)


@pytest.mark.parametrize("options", OPTIONS)
def test_gradients_are_those_of_the_lines_of_algorithm_6(options: dict) -> None:
    block = redrawn(EvoformerBlock(c_m, c_z, **{**SMALL, **options}), std=0.3)
    inputs, masks = [x.requires_grad_() for x in draw()], draw_masks()
    ours, expected = block(*inputs, *masks), evoformer_block(block, *inputs, *masks)
    directions, leaves = [torch.randn_like(x) for x in ours], (*inputs, *block.parameters())
    for gradient, slow in zip(
        torch.autograd.grad(ours, leaves, directions), torch.autograd.grad(expected, leaves, directions), strict=True
    ):
        assert gradient.isfinite().all()
        assert_close(gradient, slow)


def test_options_reach_the_layers() -> None:
    plain, other = EvoformerBlock(c_m, c_z), EvoformerBlock(c_m, c_z, **SMALL, opm_first=True, opm_centered=True)
    assert (plain.opm_first, plain.outer_product_mean.centered) == (False, False)
    assert (other.opm_first, other.outer_product_mean.centered) == (True, True)
    assert (other.msa_att_row.mha.c, other.msa_att_row.mha.N_head) == (4, 2)
    assert (other.msa_att_col.mha.c, other.msa_att_col.mha.N_head) == (4, 2)
    assert other.outer_product_mean.linear_1.out_features == 3
    pair = other.pair_stack
    assert (pair.tri_mul_out.linear_a_p.out_features, pair.tri_mul_in.linear_a_p.out_features) == (5, 5)
    assert [(layer.mha.c, layer.mha.N_head) for layer in (pair.tri_att_start, pair.tri_att_end)] == [(2, 3), (2, 3)]
    wide = EvoformerBlock(c_m, c_z, **SMALL, n_msa_transition=2, n_pair_transition=3)
    assert wide.msa_transition.linear_1.out_features == 2 * c_m
    assert wide.pair_stack.pair_transition.linear_1.out_features == 3 * c_z
    without = EvoformerBlock(c_m, c_z, **{**SMALL, "N_head_tri": 0})
    assert not [name for name in without.state_dict() if "tri_att" in name]


def test_the_outer_product_mean_sees_m_before_the_attention_only_if_it_comes_first() -> None:
    """A first outer product biases the row attention of its own block."""
    for opm_first in (False, True):
        block, (m, z) = redrawn(EvoformerBlock(c_m, c_z, **SMALL, opm_first=opm_first)), draw()
        before = block(m, z)[0]
        block.outer_product_mean.linear_out.weight.data.zero_()
        assert torch.allclose(block(m, z)[0], before) is not opm_first


def test_a_pair_stack_is_lines_6_to_10() -> None:
    stack, (_, z) = redrawn(PairStack(c_z, c_tri_mul=5, c_tri_att=2, N_head_tri=3, n_pair_transition=2)), draw()
    _, pair_mask = draw_masks()
    assert_close(stack(z, pair_mask), pair_stack(stack, z, pair_mask))
    assert_close(stack(z), pair_stack(stack, z))


@pytest.mark.parametrize("opm_first", [False, True])
def test_the_stack_is_algorithm_6_and_s_comes_from_the_first_row(opm_first: bool) -> None:
    stack = redrawn(EvoformerStack(c_m, c_z, 2, c_s, opm_first=opm_first, **SMALL), std=0.3)
    inputs = (*draw(), *draw_masks())
    m, z, s = stack(*inputs)
    assert s.shape == (N_res, c_s)
    for ours, expected in zip((m, z, s), algorithm_6(stack, *inputs), strict=True):
        assert_close(ours, expected)


def test_a_fresh_block_returns_m_and_z_as_they_are() -> None:
    block, (m, z) = EvoformerBlock(c_m, c_z, **SMALL).double(), draw()
    for mode in (True, False):
        new_m, new_z = block.train(mode)(m, z)
        assert torch.equal(new_m, m)
        assert torch.equal(new_z, z)


def test_every_weight_of_a_fresh_stack_can_learn() -> None:
    """After one step the last layers are off zero, and all the others have gradients."""
    stack = EvoformerStack(c_m, c_z, 1, c_s, **SMALL)
    m, z = (x.float() for x in draw())
    for _ in range(2):
        stack.zero_grad()
        sum((x**2).sum() for x in stack(m, z)).backward()
        with torch.no_grad():
            for parameter in stack.parameters():
                parameter -= 1e-3 * parameter.grad
    assert [name for name, p in stack.named_parameters() if p.grad.abs().max() == 0] == []


@pytest.mark.parametrize("in_training", [True, False])
def test_dropout_is_where_the_supplement_says(in_training: bool) -> None:
    """Each update in turn is the same number everywhere, so that the zeros in it are the draw."""
    block = redrawn(EvoformerBlock(c_m, c_z, **SMALL, p_msa=0.5, p_pair=0.5)).train(in_training)
    m, z = (torch.zeros_like(x) for x in draw())
    # The update's last bias, the result it lands in, and the axis that shares a draw; None is no dropout at all.
    places = {
        "msa_att_row.mha.linear_o": (0, 0),
        "msa_att_col.mha.linear_o": (0, None),
        "msa_transition.linear_2": (0, None),
        "outer_product_mean.linear_out": (1, None),
        "pair_stack.tri_mul_out.linear_z": (1, 0),
        "pair_stack.tri_mul_in.linear_z": (1, 0),
        "pair_stack.tri_att_start.mha.linear_o": (1, 0),
        "pair_stack.tri_att_end.mha.linear_o": (1, 1),
        "pair_stack.pair_transition.linear_2": (1, None),
    }
    for name, (result, shared) in places.items():
        for place in places:
            block.get_submodule(place).weight.data.zero_()
            block.get_submodule(place).bias.data.fill_(1.0 if place == name else 0.0)
        update = block(m, z)[result]
        dropped = update == 0
        if shared is None or not in_training:
            assert not dropped.any(), name
        else:
            assert 0.1 < dropped.double().mean() < 0.9, name
            assert torch.equal(dropped, dropped.narrow(shared, 0, 1).expand_as(dropped)), name
            other = dropped.movedim(shared, 0)[0]
            assert not torch.equal(other, other[:1].expand_as(other)), name


def test_dropout_rates_are_the_supplements() -> None:
    block = EvoformerBlock(c_m, c_z, **SMALL)
    assert block.dropout_row.p == 0.15
    assert (block.pair_stack.dropout_row.p, block.pair_stack.dropout_col.p) == (0.25, 0.25)
    other = EvoformerBlock(c_m, c_z, **SMALL, p_msa=0.1, p_pair=0.2)
    assert (other.dropout_row.p, other.pair_stack.dropout_row.p, other.pair_stack.dropout_col.p) == (0.1, 0.2, 0.2)


def test_evaluation_draws_nothing_and_training_does() -> None:
    block, inputs = redrawn(EvoformerBlock(c_m, c_z, **SMALL)), draw()
    assert_close(block(*inputs), block(*inputs), rtol=0, atol=0)
    block.train()
    assert not torch.equal(block(*inputs)[0], block(*inputs)[0])


def test_inputs_and_masks_stay_as_they_are() -> None:
    stack, inputs = redrawn(EvoformerStack(c_m, c_z, 2, c_s, **SMALL)), (*draw(), *draw_masks())
    before = [x.clone() for x in inputs]
    stack(*inputs)
    assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))


def test_blocks_of_a_stack_have_weights_of_their_own() -> None:
    stack = EvoformerStack(c_m, c_z, 2, c_s, **SMALL)
    assert not torch.equal(
        stack.blocks[0].msa_transition.linear_1.weight, stack.blocks[1].msa_transition.linear_1.weight
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_near_float32(dtype: torch.dtype) -> None:
    stack = redrawn(EvoformerStack(c_m, c_z, 2, c_s, **SMALL), std=0.3)
    inputs, masks = draw(), (torch.ones(N_seq, N_res), torch.ones(N_res, N_res))
    expected = stack(*inputs, *masks)
    stack.to(dtype)
    for ours, exact in zip(stack(*(x.to(dtype) for x in inputs), *masks), expected, strict=True):
        assert ours.dtype == dtype
        assert_close(ours.double(), exact, atol=0.05 * exact.abs().max().item(), rtol=0)


@pytest.mark.usefixtures("without_shape_checks")
def test_an_unknown_column_attention_is_an_error() -> None:
    with pytest.raises(ValueError, match="column_attention is 'none', expected one of full, global"):
        EvoformerBlock(c_m, c_z, column_attention="none")


@pytest.mark.usefixtures("without_shape_checks")
def test_m_and_z_of_different_lengths_and_a_mask_of_another_are_errors() -> None:
    block, (m, z) = redrawn(EvoformerBlock(c_m, c_z, **SMALL)), draw()
    for opm_first in (False, True):
        block.opm_first = opm_first
        with pytest.raises(ValueError, match=f"{N_res - 1}.*{N_res}|{N_res}.*{N_res - 1}"):
            block(m[:, 1:], z)
    with pytest.raises(ValueError, match=rf"mask.*\({N_seq}, {N_res - 1}\)"):
        block(m, z, torch.ones(N_seq, N_res - 1))
    with pytest.raises(ValueError, match=rf"mask.*\({N_seq}, {N_res}\)"):
        block(m, z, None, torch.ones(N_seq, N_res))
