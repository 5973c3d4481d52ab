"""alphafold-decoded's worksheets: their constructors, calls without masks and numbers, each formula written out.

The weights and inputs are made as the worksheets make them: evenly spaced numbers, -1 to 1 and -2 to 2. Their outer
product mean divides by the number of sequences alone, which here is `eps=0`.
"""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from evoformer import (
    EvoformerBlock,
    EvoformerStack,
    ExtraMSABlock,
    ExtraMSAStack,
    MSAColumnAttention,
    MSAColumnGlobalAttention,
    MSARowAttentionWithPairBias,
    MSATransition,
    MultiHeadAttention,
    OuterProductMean,
    PairStack,
    PairTransition,
    TriangleAttention,
    TriangleMultiplication,
    load_weights,
)

N_batch, c_m, c_z, c, N_head, N_seq, N_res = 3, 4, 5, 6, 7, 8, 9


def spaced(low: float, high: float, *shape: int) -> Tensor:
    return torch.linspace(low, high, math.prod(shape), dtype=torch.float64).reshape(shape)


def controlled(module: nn.Module) -> nn.Module:
    """The module with the worksheets' weights."""
    for parameter in module.parameters():
        parameter.data = spaced(-1, 1, *parameter.shape)
    for part in module.modules():
        if isinstance(part, OuterProductMean):
            part.eps = 0.0
    return module.eval()


@pytest.fixture(params=[(), (N_batch,)], ids=["not batched", "batched"])
def batch(request: pytest.FixtureRequest) -> tuple[int, ...]:
    return request.param


@pytest.fixture
def m(batch: tuple[int, ...]) -> Tensor:
    return spaced(-2, 2, *batch, N_seq, N_res, c_m)


@pytest.fixture
def z(batch: tuple[int, ...]) -> Tensor:
    return spaced(-2, 2, *batch, N_res, N_res, c_z)


def norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.weight + layer.bias


def heads(layer: nn.Linear, x: Tensor, N_head: int) -> Tensor:
    """A projection, [..., N_head * c] to [..., N_head, c]."""
    return F.linear(x, layer.weight, layer.bias).unflatten(-1, (N_head, -1))


def row_attention(mha: MultiHeadAttention, x: Tensor, bias: Tensor | float = 0.0, mask: Tensor | None = None) -> Tensor:
    """Along the last axis but the channels: x [..., i, c_in], bias [..., N_head, i, j], mask [..., j]."""
    q, k, v = (heads(layer, x, mha.N_head) for layer in (mha.linear_q, mha.linear_k, mha.linear_v))
    scores = torch.einsum("...ihc,...jhc->...hij", q / math.sqrt(mha.c), k) + bias
    if mask is not None:
        scores = scores + torch.where(mask == 0, -1e8, 0.0)[..., None, None, :]
    o = torch.einsum("...hij,...jhc->...ihc", scores.softmax(-1), v).flatten(-2)
    return mha.linear_o(torch.sigmoid(mha.linear_g(x)) * o if mha.gated else o)


def global_row_attention(mha: MultiHeadAttention, x: Tensor) -> Tensor:
    """One query, the mean over the axis; keys and values have one head."""
    q, k, v = heads(mha.linear_q, x, mha.N_head).mean(-3), mha.linear_k(x), mha.linear_v(x)
    weights = torch.einsum("...hc,...jc->...hj", q / math.sqrt(mha.c), k).softmax(-1)
    o = torch.einsum("...hj,...jc->...hc", weights, v).flatten(-2)[..., None, :]
    return mha.linear_o(torch.sigmoid(mha.linear_g(x)) * o if mha.gated else o)


def msa_row_attention(layer: MSARowAttentionWithPairBias, m: Tensor, z: Tensor) -> Tensor:
    bias = layer.linear_z(norm(layer.layer_norm_z, z)).movedim(-1, -3)
    return row_attention(layer.mha, norm(layer.layer_norm_m, m), bias[..., None, :, :, :])


def msa_column_attention(layer: MSAColumnAttention, m: Tensor) -> Tensor:
    return row_attention(layer.mha, norm(layer.layer_norm_m, m).transpose(-2, -3)).transpose(-2, -3)


def msa_column_global_attention(layer: MSAColumnGlobalAttention, m: Tensor) -> Tensor:
    columns = norm(layer.layer_norm_m, m).transpose(-2, -3)
    return global_row_attention(layer.global_attention, columns).transpose(-2, -3)


def transition(layer: nn.Module, x: Tensor) -> Tensor:
    return layer.linear_2(layer.linear_1(norm(layer.layer_norm, x)).clamp(min=0))


def outer_product_mean(layer: OuterProductMean, m: Tensor) -> Tensor:
    """The sum is projected, bias and all, and the result divided."""
    m = norm(layer.layer_norm, m)
    outer = torch.einsum("...sic,...sjd->...ijcd", layer.linear_1(m), layer.linear_2(m)).flatten(-2)
    return layer.linear_out(outer) / m.shape[-3]


def triangle_multiplication(layer: TriangleMultiplication, z: Tensor) -> Tensor:
    z = norm(layer.layer_norm_in, z)
    a = layer.linear_a_g(z).sigmoid() * layer.linear_a_p(z)
    b = layer.linear_b_g(z).sigmoid() * layer.linear_b_p(z)
    equation = "...ikc,...jkc->...ijc" if layer.mult_type == "outgoing" else "...kic,...kjc->...ijc"
    return layer.linear_g(z).sigmoid() * layer.linear_z(norm(layer.layer_norm_out, torch.einsum(equation, a, b)))


def triangle_attention(layer: TriangleAttention, z: Tensor) -> Tensor:
    """The ending node attends along columns; the bias is then transposed, not z."""
    z = norm(layer.layer_norm, z)
    bias = layer.linear(z).movedim(-1, -3)
    if layer.node_type == "starting_node":
        return row_attention(layer.mha, z, bias[..., None, :, :, :])
    columns = row_attention(layer.mha, z.transpose(-2, -3), bias.transpose(-1, -2)[..., None, :, :, :])
    return columns.transpose(-2, -3)


def pair_stack(stack: PairStack, z: Tensor) -> Tensor:
    z = z + triangle_multiplication(stack.tri_mul_out, z)
    z = z + triangle_multiplication(stack.tri_mul_in, z)
    z = z + triangle_attention(stack.tri_att_start, z)
    z = z + triangle_attention(stack.tri_att_end, z)
    return z + transition(stack.pair_transition, z)


def block(layer: EvoformerBlock, m: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    m = m + msa_row_attention(layer.msa_att_row, m, z)
    full = isinstance(layer.msa_att_col, MSAColumnAttention)
    m = m + (msa_column_attention if full else msa_column_global_attention)(layer.msa_att_col, m)
    m = m + transition(layer.msa_transition, m)
    z = z + outer_product_mean(layer.outer_product_mean, m)
    return m, pair_stack(layer.pair_stack, z)


# The worksheet on attention: the attended axis, of length 6, stands third from the end.
d_1, d_2, d_attn, d_4 = 3, 5, 6, 7


def test_prepare_qkv_splits_the_heads_and_moves_the_axis(batch: tuple[int, ...]) -> None:
    mha = MultiHeadAttention(8, 10, 4, -3, gated=True)
    x = spaced(-2, 2, *batch, d_1, d_2, d_attn, d_4, 40)
    for prepared, scale in zip(mha.prepare_qkv(x, 2 * x, 3 * x), (1, 2, 3), strict=True):
        assert_close(prepared, scale * x.unflatten(-1, (4, 10)).movedim(-4, -2))


def test_prepare_qkv_global_averages_the_queries_and_gives_keys_and_values_one_head(batch: tuple[int, ...]) -> None:
    mha = MultiHeadAttention(8, 10, 4, -3, False, True)
    q, k = spaced(-2, 2, *batch, d_1, d_2, d_attn, d_4, 40), spaced(-2.2, 2.2, *batch, d_1, d_2, d_attn, d_4, 10)
    mean, keys, values = mha.prepare_qkv_global(q, k, 2 * k)
    assert_close(mean, q.unflatten(-1, (4, 10)).mean(-4)[..., None, :])
    assert_close(keys, k.movedim(-3, -2)[..., None, :, :])
    assert_close(values, 2 * keys)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_multi_head_attention(batch: tuple[int, ...], gated: bool, with_bias: bool) -> None:
    mha = controlled(MultiHeadAttention(8, 10, 4, -3, gated))
    x, bias = spaced(-2, 2, *batch, d_1, d_2, d_attn, d_4, 8), spaced(-2, 2, 4, d_attn, d_attn)
    ours = mha(x, bias) if with_bias else mha(x)
    expected = row_attention(mha, x.transpose(-2, -3), bias if with_bias else 0.0)
    assert_close(ours, expected.transpose(-2, -3))


@pytest.mark.parametrize("gated", [False, True])
def test_global_attention(batch: tuple[int, ...], gated: bool) -> None:
    mha = controlled(MultiHeadAttention(8, 10, 4, -3, gated, True))
    x = spaced(-2, 2, *batch, d_1, d_2, d_attn, d_4, 8)
    assert_close(mha(x), global_row_attention(mha, x.transpose(-2, -3)).transpose(-2, -3))


def test_an_attention_mask_hides_keys(batch: tuple[int, ...]) -> None:
    mha = controlled(MultiHeadAttention(8, 10, 4, -3, use_bias_for_embeddings=True))
    x, mask = spaced(-2, 2, *batch, d_1, d_2, d_attn, d_4, 8), torch.ones(*batch, d_1, d_2, d_4, d_attn)
    mask[..., 2:4] = 0
    expected = row_attention(mha, x.transpose(-2, -3), mask=mask).transpose(-2, -3)
    assert_close(mha(x, attention_mask=mask), expected)


def test_msa_layers(m: Tensor, z: Tensor) -> None:
    row = controlled(MSARowAttentionWithPairBias(c_m, c_z, c, N_head))
    column, transition_m = controlled(MSAColumnAttention(c_m, c, N_head)), controlled(MSATransition(c_m, 3))
    global_column = controlled(MSAColumnGlobalAttention(c_m, c, N_head))
    assert_close(row(m, z), msa_row_attention(row, m, z))
    assert_close(column(m), msa_column_attention(column, m))
    assert_close(global_column(m), msa_column_global_attention(global_column, m))
    assert_close(transition_m(m), transition(transition_m, m))


def test_outer_product_mean_with_eps_0(m: Tensor) -> None:
    layer = controlled(OuterProductMean(c_m, c_z, c, 0.0))
    assert_close(layer(m), outer_product_mean(layer, m))
    default = OuterProductMean(c_m, c_z, c).double()
    default.load_state_dict(layer.state_dict())
    assert not torch.allclose(default(m), layer(m))
    assert_close(default(m), outer_product_mean(layer, m) * N_seq / (N_seq + 1e-3))


def test_pair_layers(z: Tensor) -> None:
    for mult_type in ("outgoing", "incoming"):
        multiplication = controlled(TriangleMultiplication(c_z, mult_type, c))
        assert_close(multiplication(z), triangle_multiplication(multiplication, z))
    for node_type in ("starting_node", "ending_node"):
        attention = controlled(TriangleAttention(c_z, node_type, c, N_head))
        assert_close(attention(z), triangle_attention(attention, z))
    transition_z, stack = controlled(PairTransition(c_z, 3)), controlled(PairStack(c_z))
    assert_close(transition_z(z), transition(transition_z, z))
    assert_close(stack(z), pair_stack(stack, z))


@pytest.mark.parametrize("kind", [EvoformerBlock, ExtraMSABlock])
def test_blocks(kind: type[EvoformerBlock], m: Tensor, z: Tensor) -> None:
    layer = controlled(kind(c_m, c_z))
    for ours, expected in zip(layer(m, z), block(layer, m, z), strict=True):
        assert_close(ours, expected)


def test_stacks(m: Tensor, z: Tensor) -> None:
    main, extra = controlled(EvoformerStack(c_m, c_z, 2, 5)), controlled(ExtraMSAStack(c_m, c_z, 2))
    new_m, new_z = m, z
    for layer in main.blocks:
        new_m, new_z = block(layer, new_m, new_z)
    for ours, expected in zip(main(m, z), (new_m, new_z, main.linear(new_m[..., 0, :, :])), strict=True):
        assert_close(ours, expected)
    new_m, new_z = m, z
    for layer in extra.blocks:
        new_m, new_z = block(layer, new_m, new_z)
    assert_close(extra(m, z), new_z)


@pytest.mark.parametrize("kind", [EvoformerBlock, ExtraMSABlock])
def test_their_tensors_load_into_a_block_that_gives_their_results(
    kind: type[EvoformerBlock], m: Tensor, z: Tensor
) -> None:
    """The worksheets keep a block's tensors under names with `core.`, where ours have `pair_stack.`."""
    theirs = {
        name.replace("pair_stack.", "core."): spaced(-1, 1, *tensor.shape).roll(number)  # no two tensors alike
        for number, (name, tensor) in enumerate(kind(c_m, c_z).state_dict().items())
    }
    layer = kind(c_m, c_z).double().eval()
    report = load_weights(layer, theirs)
    layer.outer_product_mean.eps = 0.0
    assert (report.layout, len(report.loaded), report.missing, report.unused) == ("decoded", 93, [], [])
    expected = kind(c_m, c_z).double().eval()
    expected.load_state_dict({name.replace("core.", "pair_stack."): tensor for name, tensor in theirs.items()})
    expected.outer_product_mean.eps = 0.0
    for ours, formula in zip(layer(m, z), block(expected, m, z), strict=True):
        assert_close(ours, formula)
