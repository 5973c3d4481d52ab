"""What holds for every layer: its Algorithm, any batch axes, what a mask hides, and what it may be made of."""

from collections.abc import Callable
from dataclasses import dataclass

import oracles
import pytest
import torch
from oracles import over_batch, redrawn
from torch import Tensor, nn
from torch.func import functional_call
from torch.testing import assert_close

from evoformer import (
    MSAColumnAttention,
    MSAColumnGlobalAttention,
    MSARowAttentionWithPairBias,
    MSATransition,
    OuterProductMean,
    PairTransition,
    TriangleAttention,
    TriangleMultiplication,
)

N_seq, N_res, c_m, c_z, c, N_head = 3, 5, 14, 6, 4, 2  # all different: no swapped axis can hide


@dataclass(frozen=True)
class Case:
    """A layer, its Algorithm, and what it takes and returns: any of "m" and "z"."""

    build: Callable[..., nn.Module]  # of c_m, c_z, c, N_head
    algorithm: Callable[..., Tensor]
    takes: str
    returns: str
    mask: str | None  # "m" or "z", what the mask covers


CASES = {
    "7 row attention": Case(MSARowAttentionWithPairBias, oracles.algorithm_7, "mz", "m", "m"),
    "8 column attention": Case(
        lambda c_m, c_z, *heads: MSAColumnAttention(c_m, *heads), oracles.algorithm_8, "m", "m", "m"
    ),
    "19 global column attention": Case(
        lambda c_m, c_z, *heads: MSAColumnGlobalAttention(c_m, *heads), oracles.algorithm_19, "m", "m", "m"
    ),
    "9 MSA transition": Case(lambda c_m, c_z, c, _: MSATransition(c_m, 3), oracles.transition, "m", "m", None),
    "10 outer product mean": Case(
        lambda c_m, c_z, c, _: OuterProductMean(c_m, c_z, c), oracles.algorithm_10, "m", "z", "m"
    ),
    "10 outer product mean, centred": Case(
        lambda c_m, c_z, c, _: OuterProductMean(c_m, c_z, c, centered=True), oracles.algorithm_10, "m", "z", "m"
    ),
    "11 outgoing edges": Case(
        lambda c_m, c_z, c, _: TriangleMultiplication(c_z, "outgoing", c), oracles.algorithm_11, "z", "z", "z"
    ),
    "12 incoming edges": Case(
        lambda c_m, c_z, c, _: TriangleMultiplication(c_z, "incoming", c), oracles.algorithm_12, "z", "z", "z"
    ),
    "13 starting node": Case(
        lambda c_m, c_z, *heads: TriangleAttention(c_z, "starting_node", *heads), oracles.algorithm_13, "z", "z", "z"
    ),
    "14 ending node": Case(
        lambda c_m, c_z, *heads: TriangleAttention(c_z, "ending_node", *heads), oracles.algorithm_14, "z", "z", "z"
    ),
    "15 pair transition": Case(lambda c_m, c_z, c, _: PairTransition(c_z, 3), oracles.transition, "z", "z", None),
}
MASKED = {name: case for name, case in CASES.items() if case.mask}


@pytest.fixture(params=CASES.values(), ids=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(params=MASKED.values(), ids=MASKED)
def masked_case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def layer(request: pytest.FixtureRequest) -> nn.Module:
    name = "case" if "case" in request.fixturenames else "masked_case"
    return redrawn(request.getfixturevalue(name).build(c_m, c_z, c, N_head))


def draw(case: Case, *batch: int, N_seq: int = N_seq, N_res: int = N_res) -> list[Tensor]:
    """The layer's tensors."""
    shapes = {"m": (*batch, N_seq, N_res, c_m), "z": (*batch, N_res, N_res, c_z)}
    return [torch.randn(shapes[name], dtype=torch.float64) for name in case.takes]


def draw_mask(case: Case, *batch: int, N_seq: int = N_seq, N_res: int = N_res) -> Tensor:
    """Zeros and ones, with a wholly masked row and a wholly masked column; no symmetry in a pair mask."""
    mask = torch.rand(*batch, N_seq if case.mask == "m" else N_res, N_res) > 0.3
    mask[..., -1, :] = False
    mask[..., :, N_res // 2] = False
    return mask.long()


def padding_mask(case: Case, rows: int, residues: int) -> Tensor:
    """1 for the first rows and residues."""
    is_row, is_residue = torch.arange(N_seq) < rows, torch.arange(N_res) < residues
    return torch.outer(is_row if case.mask == "m" else is_residue, is_residue).long()


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=["no batch axis", "one batch axis", "two batch axes"])
def test_is_its_algorithm(case: Case, layer: nn.Module, batch: tuple[int, ...]) -> None:
    inputs = draw(case, *batch)
    assert_close(layer(*inputs), over_batch(case.algorithm, layer, len(batch), *inputs))
    if case.mask:
        mask = draw_mask(case, *batch)
        assert_close(layer(*inputs, mask), over_batch(case.algorithm, layer, len(batch), *inputs, mask))


def test_one_sequence_and_one_residue_are_no_special_case(case: Case, layer: nn.Module) -> None:
    for sizes in ({"N_seq": 1}, {"N_res": 1}, {"N_seq": 1, "N_res": 1}):
        inputs = draw(case, **sizes)
        assert_close(layer(*inputs), case.algorithm(layer, *inputs))
        if case.mask:
            mask = torch.ones_like(draw_mask(case, **sizes))
            assert_close(layer(*inputs, mask), case.algorithm(layer, *inputs, mask))
            assert layer(*inputs, 0 * mask).isfinite().all()


def test_no_mask_is_a_mask_of_ones(masked_case: Case, layer: nn.Module) -> None:
    inputs = draw(masked_case, 2)
    ones = torch.ones_like(draw_mask(masked_case, 2))
    assert_close(layer(*inputs), layer(*inputs, ones), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.bfloat16])
def test_masks_may_have_any_number_type(masked_case: Case, layer: nn.Module, dtype: torch.dtype) -> None:
    inputs, mask = draw(masked_case), draw_mask(masked_case)
    update = layer(*inputs, mask.to(dtype))
    assert update.dtype == torch.float64
    assert_close(update, layer(*inputs, mask.double()), rtol=1e-9, atol=1e-9)


def test_what_a_mask_hides_reaches_no_unmasked_output(masked_case: Case, layer: nn.Module) -> None:
    """Padding rows and residues hold anything, in m and in z alike."""
    rows, residues = 2, 4
    inputs, mask = draw(masked_case), padding_mask(masked_case, rows, residues)
    others = []
    for name, x in zip(masked_case.takes, inputs, strict=True):
        real = torch.zeros(x.shape[:-1], dtype=torch.bool)
        real[: rows if name == "m" else residues, :residues] = True
        others.append(torch.where(real[..., None], x, 100 * torch.randn_like(x)))
    n = rows if masked_case.returns == "m" else residues
    before, after = layer(*inputs, mask), layer(*others, mask)
    assert_close(after[:n, :residues], before[:n, :residues])
    without_padding = layer(
        *(x[: rows if name == "m" else residues, :residues] for name, x in zip(masked_case.takes, inputs, strict=True))
    )
    assert_close(before[:n, :residues], without_padding)


@pytest.mark.parametrize("name", [name for name, case in MASKED.items() if case.takes[0] == "m"])
def test_a_masked_cell_of_the_msa_reaches_no_unmasked_output(name: str) -> None:
    """Any cells, not only padding."""
    layer = redrawn(CASES[name].build(c_m, c_z, c, N_head))
    m, *z = draw(CASES[name])
    mask = draw_mask(CASES[name])
    hidden = mask == 0
    before = layer(m, *z, mask)
    after = layer(torch.where(hidden[..., None], 100 * torch.randn_like(m), m), *z, mask)
    if CASES[name].returns == "m":
        before, after = before[~hidden], after[~hidden]
    assert_close(after, before)


def test_a_mask_changes_something(masked_case: Case, layer: nn.Module) -> None:
    inputs = draw(masked_case)
    assert not torch.allclose(layer(*inputs), layer(*inputs, padding_mask(masked_case, 2, 4)))


def test_a_fully_masked_input_has_finite_updates_and_gradients(masked_case: Case, layer: nn.Module) -> None:
    layer.float()
    inputs = [x.float().requires_grad_() for x in draw(masked_case, 2)]
    update = layer(*inputs, torch.zeros_like(draw_mask(masked_case, 2)))
    update.square().sum().backward()
    assert update.isfinite().all()
    assert all(x.grad.isfinite().all() for x in (*inputs, *layer.parameters()) if x.grad is not None)


def test_reordering_residues_reorders_the_update(case: Case, layer: nn.Module) -> None:
    order = torch.randperm(N_res)
    inputs = draw(case)
    mask = [draw_mask(case)] if case.mask else []

    def reorder(name: str, x: Tensor) -> Tensor:
        return x[:, order] if name == "m" else x[order][:, order]

    reordered = layer(
        *(reorder(name, x) for name, x in zip(case.takes, inputs, strict=True)), *(reorder(case.mask, x) for x in mask)
    )
    assert_close(reordered, reorder(case.returns, layer(*inputs, *mask)))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.takes[0] == "m"])
def test_reordering_sequences_reorders_an_msa_and_leaves_pairs(name: str) -> None:
    layer, order = redrawn(CASES[name].build(c_m, c_z, c, N_head)), torch.tensor([2, 0, 1])
    m, *z = draw(CASES[name])
    mask = [draw_mask(CASES[name])] if CASES[name].mask else []
    update = layer(m, *z, *mask)
    reordered = layer(m[order], *z, *(x[order] for x in mask))
    assert_close(reordered, update[order] if CASES[name].returns == "m" else update)


def test_inputs_need_not_be_contiguous(case: Case, layer: nn.Module) -> None:
    inputs = draw(case, 2)
    mask = [draw_mask(case, 2)] if case.mask else []
    strange = [x.movedim(0, -1).contiguous().movedim(-1, 0) for x in (*inputs, *mask)]
    assert not any(x.is_contiguous() for x in strange)
    assert_close(layer(*strange), layer(*inputs, *mask))
    stretched = [x[:1].expand(2, *x.shape[1:]) for x in (*inputs, *mask)]
    assert_close(layer(*stretched), layer(*(x.contiguous() for x in stretched)))


def test_inputs_stay_as_they_are(case: Case, layer: nn.Module) -> None:
    inputs = [*draw(case), *([draw_mask(case)] if case.mask else [])]
    before = [x.clone() for x in inputs]
    layer(*inputs)
    assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))


@pytest.mark.parametrize(
    "wrong", [(N_seq, N_res + 1), (N_seq + 1, N_res), (1, N_res), (N_seq, 1), (2, N_seq, N_res), (4,)]
)
@pytest.mark.usefixtures("without_shape_checks")
def test_a_mask_that_does_not_fit_is_an_error_with_both_shapes(
    masked_case: Case, layer: nn.Module, wrong: tuple[int, ...]
) -> None:
    inputs = draw(masked_case)
    if masked_case.mask == "z":
        wrong = tuple({N_seq: N_res, N_seq + 1: N_res - 1}.get(n, n) for n in wrong)
    covered = inputs[masked_case.takes.index(masked_case.mask)]
    with pytest.raises(ValueError, match="mask") as error:
        layer(*inputs, torch.ones(wrong))
    assert str(wrong) in str(error.value)
    assert ", ".join(map(str, covered.shape[:-1])) in str(error.value)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_near_float32(case: Case, layer: nn.Module, dtype: torch.dtype) -> None:
    inputs = draw(case)
    mask = [padding_mask(case, 2, 4)] if case.mask else []
    expected = layer(*inputs, *mask)
    update = layer.to(dtype)(*(x.to(dtype) for x in inputs), *mask)
    assert update.dtype == dtype
    assert update.isfinite().all()
    tolerance = 0.05 if dtype == torch.bfloat16 else 0.01
    n = 2 if case.returns == "m" else 4
    expected, update = expected[:n, :4], update[:n, :4]
    assert_close(update.double(), expected, atol=tolerance * expected.abs().max().item(), rtol=0)


def test_autocast_is_near_float32(case: Case, layer: nn.Module) -> None:
    layer.float()
    inputs = [x.float() for x in draw(case)]
    mask = [padding_mask(case, 2, 4)] if case.mask else []
    expected = layer(*inputs, *mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        update = layer(*inputs, *mask)
    n = 2 if case.returns == "m" else 4
    expected, update = expected[:n, :4], update[:n, :4]
    assert_close(update.float(), expected, atol=0.05 * expected.abs().max().item(), rtol=0)


def test_gradients_are_those_of_finite_differences_with_a_wholly_masked_row(case: Case) -> None:
    small = {"m": 3, "z": 2}
    layer = redrawn(case.build(small["m"], small["z"], 2, 2))
    inputs = [
        torch.randn(2 if name == "m" else 3, 3, small[name], dtype=torch.float64, requires_grad=True)
        for name in case.takes
    ]
    mask = [torch.tensor([[1, 0, 1], [0, 0, 0], [1, 0, 1]])[: 2 if case.mask == "m" else 3]] if case.mask else []
    names, weights = zip(*layer.named_parameters(), strict=True)

    def update(*tensors: Tensor) -> Tensor:
        values = dict(zip(names, tensors[len(inputs) :], strict=True))
        return functional_call(layer, values, (*tensors[: len(inputs)], *mask))

    assert torch.autograd.gradcheck(update, (*inputs, *weights))


def test_gradients_are_its_algorithms_with_a_wholly_masked_row(case: Case, layer: nn.Module) -> None:
    inputs = [x.requires_grad_() for x in draw(case)]
    mask = [draw_mask(case)] if case.mask else []
    update, expected = layer(*inputs, *mask), case.algorithm(layer, *inputs, *mask)
    direction, leaves = torch.randn_like(update), (*inputs, *layer.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(update, leaves, direction), torch.autograd.grad(expected, leaves, direction), strict=True
    ):
        assert ours.isfinite().all()
        assert_close(ours, theirs)
