"""Outer product mean: what is divided by how many rows, what centring takes away, many sequences in low precision."""

import pytest
import torch
from oracles import layer_norm, redrawn
from torch import Tensor
from torch.testing import assert_close

from evoformer import OuterProductMean

N_seq, N_res, c_m, c_z, c = 4, 5, 14, 6, 3


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def cells() -> Tensor:
    """A mask in which residues 0 and 1 share no row, and 0 and 2 share one."""
    return torch.tensor([[1, 0, 1, 1, 1], [0, 1, 1, 0, 1], [0, 1, 1, 1, 1], [0, 0, 0, 1, 1]])


def test_residues_that_share_no_row_get_the_bias_divided_by_eps() -> None:
    layer = redrawn(OuterProductMean(c_m, c_z, c, eps=0.25))
    update = layer(draw(N_seq, N_res, c_m), cells())
    assert_close(update[0, 1], layer.linear_out.bias / 0.25)
    assert OuterProductMean(c_m, c_z, c).eps == 1e-3


def test_each_pair_is_a_mean_over_the_rows_it_shares() -> None:
    """As many copies of the sequences as one likes change nothing, but for eps."""
    layer = redrawn(OuterProductMean(c_m, c_z, c, eps=0.0))
    layer.linear_out.bias.data.zero_()
    m, mask = draw(N_seq, N_res, c_m), cells() | torch.eye(1, N_res, dtype=torch.int64)
    mask[0] = 1
    assert_close(layer(m.repeat(3, 1, 1), mask.repeat(3, 1)), layer(m, mask))


def test_the_left_column_is_the_first_projection() -> None:
    layer = redrawn(OuterProductMean(c_m, c_z, c))
    m = draw(N_seq, N_res, c_m)
    other = m.clone()
    layer.linear_2.weight.data.zero_()  # so that only the left column sees m
    other[:, 1] = draw(N_seq, c_m)
    changed = (layer(other) - layer(m)).abs().amax(-1) > 1e-9
    assert changed.all(1).tolist() == changed.any(1).tolist() == [False, True, False, False, False]


def test_centring_is_subtracting_the_masked_mean_after_the_layer_norm() -> None:
    centered, plain = redrawn(OuterProductMean(c_m, c_z, c, centered=True)), redrawn(OuterProductMean(c_m, c_z, c))
    plain.load_state_dict(centered.state_dict())
    plain.layer_norm = torch.nn.Identity()
    m, mask = draw(N_seq, N_res, c_m), cells()
    normed = layer_norm(centered.layer_norm, m)
    by_hand = torch.zeros_like(normed)
    for i in range(N_res):
        rows = mask[:, i] == 1
        by_hand[:, i] = normed[:, i] - normed[rows, i].mean(0)
    assert_close(centered(m, mask), plain(by_hand, mask))
    assert_close(centered(m), plain(normed - normed.mean(0)))


def test_centred_columns_lose_whatever_all_sequences_have_in_common() -> None:
    """A vector added to every row after the LayerNorm changes nothing; uncentred it changes everything."""
    for centered in (True, False):
        layer = redrawn(OuterProductMean(c_m, c_z, c, centered=centered))
        layer.layer_norm = torch.nn.Identity()
        m, mask = draw(N_seq, N_res, c_m), cells()
        shifted = m + draw(N_res, c_m)
        assert torch.allclose(layer(shifted, mask), layer(m, mask), atol=1e-7) is centered


def test_identical_sequences_have_no_covariance() -> None:
    layer = redrawn(OuterProductMean(c_m, c_z, c, centered=True))
    for part in (layer.linear_1, layer.linear_2, layer.linear_out):
        part.bias.data.zero_()
    m = draw(1, N_res, c_m).expand(N_seq, -1, -1)
    assert_close(layer(m), torch.zeros(N_res, N_res, c_z, dtype=torch.float64))


def test_centring_is_off_unless_asked_for_and_adds_no_weights() -> None:
    assert OuterProductMean(c_m, c_z, c).centered is False
    shapes = [
        {name: value.shape for name, value in OuterProductMean(c_m, c_z, c, centered=centered).state_dict().items()}
        for centered in (True, False)
    ]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_many_sequences_are_summed_and_counted_in_float32(dtype: torch.dtype) -> None:
    """In bfloat16 a sum of ones stops at 256, and in float16 one of 70000 is infinite."""
    layer = redrawn(OuterProductMean(2, 1, 1)).to(dtype)
    for part in (layer.linear_1, layer.linear_2, layer.linear_out):
        part.weight.data.zero_()
        part.bias.data.fill_(1.0)
    layer.linear_out.weight.data.fill_(1.0)
    layer.linear_out.bias.data.zero_()
    update = layer(torch.randn(70000, 1, 2, dtype=dtype), torch.ones(70000, 1, dtype=dtype))
    assert_close(update.float(), torch.ones(1, 1, 1), atol=0.01, rtol=0)


def test_autocast_counts_the_sequences_exactly() -> None:
    """305 rows are 304 in bfloat16; here the update is the count's inverse."""
    layer = OuterProductMean(2, 1, 1)
    layer.linear_out.bias.data.fill_(1.0)
    m, mask = torch.randn(305, 2, 2), torch.ones(305, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        update = layer(m, mask)
    assert update.dtype == torch.float32
    assert_close(update, torch.full((2, 2, 1), 1 / 305.001), rtol=1e-6, atol=0)
