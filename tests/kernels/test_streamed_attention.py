"""Streamed attention of `MultiHeadAttention` itself: along any axis, with a bias and a mask for any leading axes."""

import itertools
from collections.abc import Sequence

import pytest
import torch
from oracles import redrawn
from running import REFERENCE, STREAMED, assert_same, outcome
from torch import Tensor

from evoformer import Execution, KernelError, MultiHeadAttention
from evoformer.kernels import streamed_attention, streaming

shape, c_in, c, N_head = (2, 6, 5), 11, 4, 3  # all different: no swapped axis can hide
FORMS = [
    pytest.param({"gated": gated, "use_bias_for_embeddings": biased}, id=f"{kind}{name}")
    for (gated, kind), (biased, name) in itertools.product(
        [(False, "plain"), (True, "gated")], [(False, ""), (True, ", biased")]
    )
]
LEADS = pytest.mark.parametrize("lead", [None, 0, 1, 2], ids=["none", "for all", "one a first axis", "one a row"])


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "CHUNK_TOKENS", 12)
    monkeypatch.setattr(streamed_attention, "LOGITS", 2 * N_head * 6**2)


def assert_agree(mha: MultiHeadAttention, inputs: Sequence[Tensor], mask: Tensor | None = None) -> None:
    """With or without slices."""
    masks = [None] * (2 - len(inputs)) + [mask]  # in the bias's place where there is none
    expected = outcome(mha, inputs, masks, REFERENCE)
    for slice_size in (None, 4):
        assert_same(outcome(mha, inputs, masks, Execution(kernel="streamed", slice_size=slice_size)), expected)


def draw(
    attn_dim: int, lead: int | None, mask_lead: int | None, c_in: int = c_in
) -> tuple[list[Tensor], Tensor | None]:
    """x, and a bias and a mask for as many leading axes as asked."""
    others, n = [size for axis, size in enumerate(shape) if axis != attn_dim], shape[attn_dim]
    inputs = [torch.randn(*shape, c_in, dtype=torch.float64, requires_grad=True)]
    if lead is not None:
        inputs.append(torch.randn(*others[:lead], N_head, n, n, dtype=torch.float64, requires_grad=True))
    if mask_lead is None:
        return inputs, None
    mask = torch.rand(*others[:mask_lead], n) > 0.4
    mask.view(-1, n)[0] = False
    return inputs, mask


@pytest.mark.parametrize("form", FORMS)
@LEADS
@pytest.mark.parametrize("attn_dim", [0, 1, 2])
def test_a_bias_of_any_leading_axes_gives_the_references_numbers(
    form: dict[str, bool], lead: int | None, attn_dim: int
) -> None:
    inputs, mask = draw(attn_dim, lead, mask_lead=2)
    for axis in (attn_dim, attn_dim - 4):
        mha = redrawn(MultiHeadAttention(c_in, c, N_head, axis, **form))
        assert_agree(mha, inputs)
        assert_agree(mha, inputs, mask)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("attn_dim", [0, 1, 2])
def test_fewer_channels_than_positions_give_the_references_numbers(form: dict[str, bool], attn_dim: int) -> None:
    """Then gates are made again in the backward pass."""
    few = min(shape[attn_dim] - 1, 3)
    inputs, mask = draw(attn_dim, 1, mask_lead=2, c_in=few)
    mha = redrawn(MultiHeadAttention(few, c, N_head, attn_dim, **form))
    assert_agree(mha, inputs)
    assert_agree(mha, inputs, mask)


@LEADS
@pytest.mark.parametrize("mask_lead", [0, 1, 2])
def test_a_mask_of_any_leading_axes_gives_the_references_numbers(lead: int | None, mask_lead: int) -> None:
    for attn_dim in (0, 1, 2):
        inputs, mask = draw(attn_dim, lead, mask_lead)
        assert_agree(redrawn(MultiHeadAttention(c_in, c, N_head, attn_dim, gated=True)), inputs, mask)


@pytest.mark.parametrize("mask_lead", [None, 0, 1, 2])
def test_a_global_query_gives_the_references_numbers(mask_lead: int | None) -> None:
    for attn_dim in (0, 1, 2):
        inputs, mask = draw(attn_dim, None, mask_lead)
        assert_agree(redrawn(MultiHeadAttention(c_in, c, N_head, attn_dim, gated=True, is_global=True)), inputs, mask)


def test_a_bias_with_axes_of_length_1_gives_the_references_numbers() -> None:
    """Also of one batch element, which has its own bias all the same."""
    mha = redrawn(MultiHeadAttention(c_in, c, N_head, -2, gated=True))
    for batch, lead in [((1, 6), (1,)), ((2, 6), (1,)), ((2, 6), (1, 6)), ((2, 6), (2, 1)), ((2, 6), (1, 1))]:
        x = torch.randn(*batch, 5, c_in, dtype=torch.float64, requires_grad=True)
        bias = torch.randn(*lead, N_head, 5, 5, dtype=torch.float64, requires_grad=True)
        assert_agree(mha, [x, bias])


def test_a_bias_that_asks_for_no_gradient_serves_as_one_that_does() -> None:
    (x, bias), mask = draw(2, 1, 2)
    assert_agree(redrawn(MultiHeadAttention(c_in, c, N_head, -2)), [x, bias.detach()], mask)


def test_a_bias_with_any_strides_gives_the_references_numbers() -> None:
    (x, bias), mask = draw(2, 1, 2)
    strange = bias.detach().transpose(-1, -2).contiguous().transpose(-1, -2).requires_grad_()
    assert_agree(redrawn(MultiHeadAttention(c_in, c, N_head, -2)), [x, strange], mask)


def test_very_low_and_very_high_logits_give_the_references_numbers() -> None:
    """A masked key stays hidden however low the other logits."""
    (x, bias), mask = draw(2, 0, 2)
    bias = (1e4 * bias.detach()).requires_grad_()
    assert_agree(redrawn(MultiHeadAttention(c_in, c, N_head, -2, gated=True)), [x, bias], mask)


@pytest.mark.parametrize(
    ("form", "biased", "reason"),
    [
        ({}, False, "there is no gate"),
        ({"gated": True, "use_bias_for_embeddings": True}, False, "queries, keys and values have no bias"),
        ({"gated": True}, True, "no bias to the logits"),
    ],
)
def test_a_global_query_without_a_gate_or_with_biases_is_refused_with_the_reason(
    form: dict[str, bool], biased: bool, reason: str
) -> None:
    mha = redrawn(MultiHeadAttention(c_in, c, N_head, -2, is_global=True, **form))
    x = torch.randn(*shape, c_in, dtype=torch.float64)
    mha.execution = STREAMED
    with pytest.raises(KernelError, match=f"'streamed' cannot serve global_attention: .*{reason}"):
        mha(x, torch.zeros(N_head, 1, shape[-1], dtype=torch.float64) if biased else None)
