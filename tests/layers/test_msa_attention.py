"""MSA attention: which axis attends, the pair bias that all rows share, and m and z that do not fit."""

import pytest
import torch
from oracles import redrawn
from torch import Tensor
from torch.testing import assert_close

from evoformer import MSAColumnAttention, MSAColumnGlobalAttention, MSARowAttentionWithPairBias

N_seq, N_res, c_m, c_z, c, N_head = 3, 5, 14, 6, 4, 2


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_rows_are_independent_of_one_another() -> None:
    layer = redrawn(MSARowAttentionWithPairBias(c_m, c_z, c, N_head))
    m, z = draw(N_seq, N_res, c_m), draw(N_res, N_res, c_z)
    assert_close(layer(m, z)[1:2], layer(m[1:2], z))


@pytest.mark.parametrize("kind", [MSAColumnAttention, MSAColumnGlobalAttention])
def test_columns_are_independent_of_one_another(
    kind: type[MSAColumnAttention] | type[MSAColumnGlobalAttention],
) -> None:
    layer, m = redrawn(kind(c_m, c, N_head)), draw(N_seq, N_res, c_m)
    assert_close(layer(m)[:, 1:3], layer(m[:, 1:3]))
    assert not torch.allclose(layer(m)[:1], layer(m[:1]))


def test_the_pair_bias_of_i_and_j_moves_what_i_takes_from_j() -> None:
    """Only row i of the attention changes with z[i, j], for every sequence: queries are the first axis of z."""
    layer = redrawn(MSARowAttentionWithPairBias(c_m, c_z, c, N_head))
    m, z = draw(N_seq, N_res, c_m), draw(N_res, N_res, c_z)
    other = z.clone()
    other[1, 3] = draw(c_z)
    changed = (layer(m, other) - layer(m, z)).abs().amax(-1) > 1e-8
    assert changed.all(0).tolist() == changed.any(0).tolist() == [False, True, False, False, False]


def test_each_z_of_a_batch_serves_its_own_m() -> None:
    layer, n = redrawn(MSARowAttentionWithPairBias(c_m, c_z, c, N_head)), N_seq  # as many as sequences
    m, z = draw(n, N_seq, N_res, c_m), draw(n, N_res, N_res, c_z)
    assert_close(layer(m, z), torch.stack([layer(m[b], z[b]) for b in range(n)]))


def test_the_global_query_is_the_mean_of_the_unmasked_sequences() -> None:
    """So a sequence repeated changes the update, unless the repeat is masked."""
    layer, m = redrawn(MSAColumnGlobalAttention(c_m, c, N_head)), draw(N_seq, N_res, c_m)
    repeated, mask = torch.cat([m, m[:1]]), torch.ones(N_seq + 1, N_res)
    assert not torch.allclose(layer(repeated, mask)[:N_seq], layer(m))
    mask[-1] = 0
    assert_close(layer(repeated, mask)[:N_seq], layer(m))


@pytest.mark.usefixtures("without_shape_checks")
def test_another_number_of_residues_in_m_and_z_is_an_error_with_both() -> None:
    layer = redrawn(MSARowAttentionWithPairBias(c_m, c_z, c, N_head))
    for shape in [(4, 4, c_z), (N_res, 4, c_z), (4, N_res, c_z), (1, 1, c_z)]:
        with pytest.raises(ValueError, match=f"m has {N_res} residues, z has {shape[0]} x {shape[1]}"):
            layer(draw(N_seq, N_res, c_m), draw(*shape))


@pytest.mark.usefixtures("without_shape_checks")
def test_a_batch_of_z_is_not_paired_with_the_sequences_of_a_single_m() -> None:
    layer = redrawn(MSARowAttentionWithPairBias(c_m, c_z, c, N_head))
    with pytest.raises(ValueError, match=str((N_seq, N_res, c_m)).replace("(", r"\(").replace(")", r"\)")) as error:
        layer(draw(N_seq, N_res, c_m), draw(N_seq, N_res, N_res, c_z))
    assert str((N_seq, N_res, N_res, c_z)) in str(error.value)
