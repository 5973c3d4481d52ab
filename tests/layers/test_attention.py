"""Multi-head attention: the textbook's numbers, any axis, biases and masks aligned from the left, what they hide."""

import itertools

import pytest
import torch
from oracles import attend, attention_along, redrawn
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.testing import assert_close

from evoformer import MultiHeadAttention, ops
from evoformer.kernels import reference

c_in, c, N_head = 7, 4, 3  # c is not c_in / N_head, and no two sizes agree
FORMS = [
    pytest.param({"gated": gated, "is_global": is_global, "use_bias_for_embeddings": bias}, id=f"{name}{kind}{biased}")
    for (gated, name), (is_global, kind), (bias, biased) in itertools.product(
        [(False, "plain"), (True, "gated")], [(False, ""), (True, "_global")], [(False, ""), (True, "_biased")]
    )
]


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def random_mask(*shape: int) -> Tensor:
    """Zeros and ones; the first line along the last axis is hidden wholly."""
    mask = torch.rand(*shape) > 0.4
    mask.view(-1, shape[-1])[0] = False
    return mask


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(5, c_in), (2, 5, c_in), (2, 3, 5, c_in)], ids=["0 axes", "1 axis", "2 axes"])
def test_each_axis_attends_as_the_plain_loop(shape: tuple[int, ...], form: dict[str, bool]) -> None:
    x = draw(*shape)
    for axis in range(len(shape) - 1):
        n = shape[axis]
        others = shape[:axis] + shape[axis + 1 : -1]
        bias, mask = draw(*others, N_head, 1 if form["is_global"] else n, n), random_mask(*others, n)
        for attn_dim in (axis, axis - len(shape)):
            mha = redrawn(MultiHeadAttention(c_in, c, N_head, attn_dim, **form))
            assert_close(mha(x), attention_along(mha, x))
            assert_close(mha(x, bias), attention_along(mha, x, bias))
            assert_close(mha(x, bias, mask), attention_along(mha, x, bias, mask))
            assert_close(mha(x, attention_mask=mask), attention_along(mha, x, None, mask))


@pytest.mark.parametrize("attn_dim", [-2, -3, -4])
def test_a_bias_with_a_leading_part_of_the_axes_is_aligned_from_the_left(attn_dim: int) -> None:
    n = 3  # all axes are alike, so that pairing them from the right goes unnoticed but for the numbers
    x = draw(n, n, n, c_in)
    mha = redrawn(MultiHeadAttention(c_in, c, N_head, attn_dim, gated=True))
    for lead in [(), (n,), (n, n)]:
        bias = draw(*lead, N_head, n, n)
        assert_close(mha(x, bias), attention_along(mha, x, bias))


def test_a_mask_with_a_leading_part_of_the_axes_is_aligned_from_the_left() -> None:
    n = 3
    x = draw(n, n, n, c_in)
    for is_global in (False, True):
        mha = redrawn(MultiHeadAttention(c_in, c, N_head, -2, is_global=is_global))
        for lead in [(), (n,), (n, n)]:
            mask = random_mask(*lead, n)
            assert_close(mha(x, attention_mask=mask), attention_along(mha, x, None, mask))


def test_a_bias_of_one_batch_element_stays_with_it() -> None:
    x, bias = draw(3, 3, 5, c_in), torch.zeros(3, N_head, 5, 5, dtype=torch.float64)
    bias[1] = draw(N_head, 5, 5)
    mha = redrawn(MultiHeadAttention(c_in, c, N_head, -2))
    changed = (mha(x, bias) - mha(x)).abs().amax((-1, -2)) > 1e-6
    assert changed.tolist() == [[False] * 3, [True] * 3, [False] * 3]


@pytest.mark.parametrize("form", FORMS)
def test_a_query_whose_keys_are_all_masked_gets_the_mean_of_the_values(form: dict[str, bool]) -> None:
    x, mask = draw(2, 5, c_in), torch.ones(2, 5)
    mask[1] = 0
    mha = redrawn(MultiHeadAttention(c_in, c, N_head, -2, **form))
    v = mha.linear_v(x[1]).mean(0)
    o = v.repeat(N_head) if form["is_global"] else v
    o = torch.sigmoid(mha.linear_g(x[1])) * o if form["gated"] else o.expand(1 if form["is_global"] else 5, -1)
    assert_close(mha(x, draw(N_head, 1 if form["is_global"] else 5, 5), mask)[1], mha.linear_o(o))


@pytest.mark.parametrize("form", FORMS)
def test_masked_keys_reach_no_unmasked_query(form: dict[str, bool]) -> None:
    x, bias = draw(2, 5, c_in), draw(N_head, 1 if form["is_global"] else 5, 5)
    mask = torch.tensor([[1, 0, 1, 1, 0], [0, 1, 0, 1, 1]])
    mha = redrawn(MultiHeadAttention(c_in, c, N_head, -2, **form))
    other = torch.where(mask[..., None] == 0, 100 * draw(2, 5, c_in), x)
    before, after = mha(x, bias, mask), mha(other, bias, mask)
    if before.shape == x.shape:
        before, after = before[mask == 1], after[mask == 1]
    assert_close(after, before)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.bfloat16])
def test_a_mask_may_have_any_number_type(dtype: torch.dtype) -> None:
    x, mask = draw(2, 5, c_in), random_mask(2, 5)
    for is_global in (False, True):
        mha = redrawn(MultiHeadAttention(c_in, c, N_head, -2, is_global=is_global))
        assert_close(mha(x, attention_mask=mask.to(dtype)), mha(x, attention_mask=mask.double()))


def test_global_attention_has_length_1_along_the_axis_without_a_gate_and_all_of_x_with_one() -> None:
    x = draw(2, 3, 5, c_in)
    assert redrawn(MultiHeadAttention(c_in, c, N_head, -3, is_global=True))(x).shape == (2, 1, 5, c_in)
    assert redrawn(MultiHeadAttention(c_in, c, N_head, -3, is_global=True, gated=True))(x).shape == x.shape


def test_prepare_qkv_splits_heads_and_moves_the_axis_next_to_the_channels() -> None:
    mha = MultiHeadAttention(c_in, c, N_head, attn_dim=-3)
    q, k, v = (draw(2, n, 6, N_head * c) for n in (3, 5, 5))
    for before, after in zip((q, k, v), mha.prepare_qkv(q, k, v), strict=True):
        n = before.shape[1]
        assert after.shape == (2, 6, N_head, n, c)
        for b, i, t, h in itertools.product(range(2), range(n), range(6), range(N_head)):
            assert torch.equal(after[b, t, h, i], before[b, i, t, h * c : (h + 1) * c])


@pytest.mark.parametrize("masked", [False, True])
def test_prepare_qkv_global_averages_the_query_over_what_is_not_masked(masked: bool) -> None:
    mha = MultiHeadAttention(c_in, c, N_head, attn_dim=-3, is_global=True)
    q, k, v = draw(2, 5, 6, N_head * c), draw(2, 5, 6, c), draw(2, 5, 6, c)
    mask = random_mask(2, 6, 5) if masked else None
    mean, k_after, v_after = mha.prepare_qkv_global(q, k, v, mask) if masked else mha.prepare_qkv_global(q, k, v)
    assert mean.shape == (2, 6, N_head, 1, c)
    for b, t, h in itertools.product(range(2), range(6), range(N_head)):
        rows = [i for i in range(5) if mask is None or mask[b, t, i]]
        heads = [q[b, i, t, h * c : (h + 1) * c] for i in rows]
        assert_close(mean[b, t, h, 0], sum(heads) / len(heads) if heads else torch.zeros(c, dtype=torch.float64))
    assert_close(k_after, k.transpose(1, 2)[:, :, None])
    assert_close(v_after, v.transpose(1, 2)[:, :, None])


def test_q_k_and_v_each_have_a_projection() -> None:
    x = draw(5, c_in)
    mha = redrawn(MultiHeadAttention(c_in, c, N_head, -2, gated=True))
    before = mha(x)
    for name in ("linear_q", "linear_k", "linear_v", "linear_g", "linear_o"):
        other = redrawn(MultiHeadAttention(c_in, c, N_head, -2, gated=True))
        other.load_state_dict({**mha.state_dict(), f"{name}.weight": torch.zeros_like(getattr(mha, name).weight)})
        assert not torch.allclose(other(x), before), name


def test_embeddings_have_biases_only_where_asked() -> None:
    plain = MultiHeadAttention(c_in, c, N_head, -2, gated=True)
    biased = MultiHeadAttention(c_in, c, N_head, -2, gated=True, use_bias_for_embeddings=True)
    extra = {"linear_q.bias", "linear_k.bias", "linear_v.bias"}
    assert set(biased.state_dict()) - set(plain.state_dict()) == extra
    assert {"linear_o.bias", "linear_g.bias"} < set(plain.state_dict())


@pytest.mark.parametrize("masked", [False, True])
def test_the_textbook_form_is_pytorchs_multi_head_attention(masked: bool) -> None:
    embed, heads = 12, 3
    mha = redrawn(MultiHeadAttention(embed, embed // heads, heads, attn_dim=-2, use_bias_for_embeddings=True))
    x = draw(2, 5, embed)
    mask = torch.tensor([[1, 1, 0, 1, 1], [1, 0, 0, 1, 0]]) if masked else None
    theirs = nn.MultiheadAttention(embed, heads, batch_first=True, dtype=torch.float64)
    parts = (mha.linear_q, mha.linear_k, mha.linear_v)
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat([part.weight for part in parts]),
            "in_proj_bias": torch.cat([part.bias for part in parts]),
            "out_proj.weight": mha.linear_o.weight,
            "out_proj.bias": mha.linear_o.bias,
        }
    )
    expected, _ = theirs(x, x, x, key_padding_mask=None if mask is None else mask == 0)
    assert_close(mha(x, attention_mask=mask), expected)
    functional, _ = F.multi_head_attention_forward(
        *(x.transpose(0, 1),) * 3, embed, heads, theirs.in_proj_weight, theirs.in_proj_bias, None, None, False, 0.0,
        theirs.out_proj.weight, theirs.out_proj.bias, key_padding_mask=None if mask is None else mask == 0,
    )  # fmt: skip
    assert_close(mha(x, attention_mask=mask), functional.transpose(0, 1))


@pytest.mark.parametrize(
    ("bias", "mask"),
    [
        ((N_head, 5, 4), None),  # too few keys
        ((N_head + 1, 5, 5), None),
        ((1, 5, 5), None),  # a head too few, though it would broadcast
        ((N_head, 1, 5), None),
        ((6, N_head, 5, 5), None),  # pairs with the last axis only
        ((2, 6, 1, N_head, 5, 5), None),
        ((5, 5), None),
        (None, (4,)),
        (None, (1,)),  # would broadcast, and count wrong
        (None, (2, 6, 4)),
        (None, (6, 5)),
        (None, (6, 2, 5)),
        (None, (2, 6, 1, 5)),
    ],
)
@pytest.mark.parametrize("is_global", [False, True])
def test_a_bias_or_mask_that_does_not_fit_is_an_error_with_both_shapes(
    bias: tuple[int, ...] | None, mask: tuple[int, ...] | None, is_global: bool
) -> None:
    x = draw(2, 6, 5, c_in)
    if is_global and bias is not None:
        bias = (*bias[:-2], 2, bias[-1])
    mha = MultiHeadAttention(c_in, c, N_head, -2, is_global=is_global).double()
    with pytest.raises(ValueError, match="has shape") as error:
        mha(x, None if bias is None else draw(*bias), None if mask is None else torch.ones(mask))
    assert str(bias or mask) in str(error.value)
    assert "2, 6" in str(error.value)


def test_the_channels_are_no_axis_to_attend_along() -> None:
    with pytest.raises(ValueError, match="attn_dim is -1"):
        MultiHeadAttention(c_in, c, N_head, -1)
    for attn_dim in (2, 3, -4):
        with pytest.raises(ValueError, match=rf"attn_dim is {attn_dim}.*\(2, 5, {c_in}\)"):
            MultiHeadAttention(c_in, c, N_head, attn_dim).double()(draw(2, 5, c_in))


def test_a_bias_is_not_copied_once_a_row() -> None:
    """The bias reaches the operation as a view with an axis of length 1, whatever the number of rows."""
    seen: list[Tensor] = []
    x, bias = draw(2, 6, 5, c_in), draw(2, N_head, 5, 5)
    mha = redrawn(MultiHeadAttention(c_in, c, N_head, -2))
    original = reference.attention
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "attention", lambda *args: (seen.append(args[3]), original(*args))[1])
        mha(x, bias)
    assert seen[0].shape == (2, 1, N_head, 5, 5)
    assert seen[0].data_ptr() == bias.data_ptr()


def test_attention_takes_any_widths_and_a_mask_of_any_query() -> None:
    q, k, v = draw(2, N_head, 3, 4), draw(2, N_head, 5, 4), draw(2, N_head, 5, 6)
    bias, mask = draw(N_head, 3, 5), random_mask(2, N_head, 3, 5)
    o = ops.attention(q, k, v, bias, mask)
    assert o.shape == (2, N_head, 3, 6)
    for b, h, i in itertools.product(range(2), range(N_head), range(3)):
        assert_close(o[b, h, i], attend(q[b, h, i], k[b, h], v[b, h], bias[h, i], mask[b, h, i]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_masked_key_stays_hidden_however_low_the_other_logits(dtype: torch.dtype) -> None:
    q, k, v = torch.zeros(1, 1, 4, dtype=dtype), torch.zeros(1, 3, 4, dtype=dtype), torch.eye(3, dtype=dtype)[None]
    bias, mask = torch.tensor([[[-3e4, -3e4, 3e4]]], dtype=dtype), torch.tensor([1, 1, 0])
    assert ops.attention(q, k, v, bias, mask)[0, 0].tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_softmax_of_low_precision_runs_in_float32(dtype: torch.dtype) -> None:
    """4096 equal weights are 1/4096 each, and their sum is 1; summed in bfloat16 it would stop growing."""
    q, k, v = (
        torch.zeros(1, 1, 4, dtype=dtype),
        torch.zeros(1, 4096, 4, dtype=dtype),
        torch.ones(1, 4096, 2, dtype=dtype),
    )
    bias, mask = torch.zeros(1, 1, 4096, dtype=dtype), torch.zeros(4096)
    o = ops.attention(q, k, v, bias, mask)
    assert o.dtype == dtype
    assert_close(o, torch.ones(1, 1, 2, dtype=dtype), atol=0.01, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_masked_mean_of_low_precision_sums_in_float32(dtype: torch.dtype) -> None:
    x = torch.full((70000, 2), 1.5, dtype=dtype)  # the sum fits neither float16 nor bfloat16's steps
    mean = ops.masked_mean(x, torch.ones(70000, 1), axis=0)
    assert mean.dtype == dtype
    assert_close(mean, torch.full((1, 2), 1.5, dtype=dtype))


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_finite_differences_and_of_the_loop_with_a_wholly_masked_row(
    form: dict[str, bool],
) -> None:
    mha = redrawn(MultiHeadAttention(3, 2, 2, -2, **form))
    names, weights = zip(*mha.named_parameters(), strict=True)
    mask = torch.tensor([[1, 0, 1], [0, 0, 0]])

    def update(x: Tensor, bias: Tensor, *weights: Tensor) -> Tensor:
        return functional_call(mha, dict(zip(names, weights, strict=True)), (x, bias, mask))

    x, bias = draw(2, 3, 3).requires_grad_(), draw(2, 1 if form["is_global"] else 3, 3).requires_grad_()
    leaves = (x, bias, *weights)
    assert torch.autograd.gradcheck(update, leaves)
    ours, expected = mha(x, bias, mask), attention_along(mha, x, bias, mask)
    direction = torch.randn_like(ours)
    for gradient, slow in zip(
        torch.autograd.grad(ours, leaves, direction), torch.autograd.grad(expected, leaves, direction), strict=True
    ):
        assert gradient.isfinite().all()
        assert_close(gradient, slow)
