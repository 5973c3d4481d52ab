"""What holds for every block and stack, at any sizes, batch axes and masks: hypothesis looks for what breaks it."""

import copy
import functools
import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import algorithm_18, evoformer_block, linear, pair_stack, redrawn
from torch import Tensor, nn
from torch.testing import assert_close

from evoformer import EvoformerBlock, EvoformerStack, ExtraMSABlock, ExtraMSAStack, PairStack

c_m, c_z, c_s = 7, 6, 8
PAIR = {"c_tri_mul": 5, "c_tri_att": 2, "N_head_tri": 3, "n_pair_transition": 2}
SMALL = {"c_msa_att": 4, "N_head_msa": 2, "c_opm": 3, "n_msa_transition": 2, **PAIR}
FORMS: dict[str, Callable[[], nn.Module]] = {
    "monomer": lambda: EvoformerStack(c_m, c_z, 2, c_s, **SMALL),
    "multimer": lambda: EvoformerStack(c_m, c_z, 2, c_s, opm_first=True, **SMALL),
    "centred": lambda: EvoformerStack(c_m, c_z, 2, c_s, opm_centered=True, **SMALL),
    "no triangle attention": lambda: EvoformerStack(c_m, c_z, 2, c_s, **{**SMALL, "N_head_tri": 0}),
    "block": lambda: EvoformerBlock(c_m, c_z, **SMALL),
    "extra block": lambda: ExtraMSABlock(c_m, c_z, **SMALL),
    "extra stack": lambda: ExtraMSAStack(c_m, c_z, 2, **SMALL),
    "extra stack, multimer": lambda: ExtraMSAStack(c_m, c_z, 2, opm_first=True, **SMALL),
    "pair stack": lambda: PairStack(c_z, **PAIR),
}
BATCHES = [(), (2,), (3,), (2, 1), (2, 2)]
FEW = settings(max_examples=15, deadline=None, derandomize=True)


@functools.cache
def module(form: str) -> nn.Module:
    torch.manual_seed(1)
    return redrawn(FORMS[form](), std=0.3)


@dataclass(frozen=True)
class Inputs:
    """What a block takes; the pair stack leaves half of it aside."""

    m: Tensor
    z: Tensor
    msa_mask: Tensor | None
    pair_mask: Tensor | None

    def each(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        return Inputs(change(self.m), change(self.z), change(self.msa_mask), change(self.pair_mask))

    def reordered(self, rows: Tensor, residues: Tensor) -> "Inputs":
        m, msa_mask = self.m.index_select(-3, rows), self.msa_mask.index_select(-2, rows)
        z, pair_mask = self.z.index_select(-3, residues), self.pair_mask.index_select(-2, residues)
        m, z = m.index_select(-2, residues), z.index_select(-2, residues)
        return Inputs(m, z, msa_mask.index_select(-1, residues), pair_mask.index_select(-1, residues))


def run(block: nn.Module, x: Inputs) -> dict[str, Tensor]:
    """The results by name."""
    if isinstance(block, PairStack):
        return {"z": block(x.z, x.pair_mask)}
    result = block(x.m, x.z, x.msa_mask, x.pair_mask)
    return {"z": result} if isinstance(result, Tensor) else dict(zip("mzs", result, strict=False))


def assert_same(ours: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(ours[name], value, msg=lambda text, name=name: f"{name}: {text}")


@st.composite
def inputs(draw: st.DrawFn, batches: list[tuple[int, ...]] = BATCHES) -> Inputs:
    """Any sizes from 1, any batch axes, masks from nothing hidden to everything; no symmetry in a pair mask."""
    batch = draw(st.sampled_from(batches))
    N_seq, N_res = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    torch.manual_seed(draw(st.integers(0, 2**32 - 1)))
    hidden = draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    return Inputs(
        torch.randn(*batch, N_seq, N_res, c_m, dtype=torch.float64),
        torch.randn(*batch, N_res, N_res, c_z, dtype=torch.float64),
        torch.rand(*batch, N_seq, N_res) >= hidden,
        torch.rand(*batch, N_res, N_res) >= hidden,
    )


FORM = pytest.mark.parametrize("form", FORMS)


@pytest.mark.parametrize("form", ["block", "extra block", "extra stack, multimer", "pair stack", "multimer"])
@settings(FEW, max_examples=10)
@given(x=inputs([()]))
def test_any_sizes_and_masks_are_the_algorithms(form: str, x: Inputs) -> None:
    block = module(form)
    if form == "pair stack":
        expected = {"z": pair_stack(block, x.z, x.pair_mask)}
    elif form == "extra stack, multimer":
        expected = {"z": algorithm_18(block, x.m, x.z, x.msa_mask, x.pair_mask)}
    else:
        m, z = x.m, x.z
        for part in getattr(block, "blocks", [block]):
            m, z = evoformer_block(part, m, z, x.msa_mask, x.pair_mask)
        expected = {"m": m, "z": z}
        if form == "multimer":
            expected["s"] = linear(block.linear, m[0])
    assert_same(run(block, x), expected)


@FORM
@FEW
@given(x=inputs())
def test_batch_elements_are_independent(form: str, x: Inputs) -> None:
    together = run(module(form), x)
    for index in itertools.product(*(range(n) for n in x.z.shape[:-3])):
        alone = run(module(form), x.each(operator.itemgetter(index)))
        assert_same({name: value[index] for name, value in together.items()}, alone)


@FORM
@FEW
@given(x=inputs([(2,), (3,)]), data=st.data())
def test_padding_changes_nothing_real(form: str, x: Inputs, data: st.DataObject) -> None:
    """Each element of the batch has its own number of rows and residues; what lies beyond holds anything."""
    N_seq, N_res = x.m.shape[1:3]
    lengths = [(data.draw(st.integers(1, N_seq)), data.draw(st.integers(1, N_res))) for _ in x.m]
    msa_mask, pair_mask = torch.zeros_like(x.msa_mask), torch.zeros_like(x.pair_mask)
    for b, (rows, residues) in enumerate(lengths):
        msa_mask[b, :rows, :residues] = x.msa_mask[b, :rows, :residues]
        pair_mask[b, :residues, :residues] = True
    padded = run(module(form), replace(x, msa_mask=msa_mask, pair_mask=pair_mask))
    for b, (rows, residues) in enumerate(lengths):
        m, z = x.m[b, :rows, :residues], x.z[b, :residues, :residues]
        alone = run(module(form), Inputs(m, z, msa_mask[b, :rows, :residues], None))
        assert_close(padded["z"][b, :residues, :residues], alone["z"])
        real = msa_mask[b, :rows, :residues]
        if "m" in alone:
            assert_close(padded["m"][b, :rows, :residues][real], alone["m"][real])
        if "s" in alone:
            assert_close(padded["s"][b, :residues][real[0]], alone["s"][real[0]])


@pytest.mark.parametrize("form", [form for form in FORMS if form != "pair stack"])
@FEW
@given(x=inputs())
def test_reordering_sequences_below_the_query_reorders_m_and_leaves_z_and_s(form: str, x: Inputs) -> None:
    N_seq, N_res = x.m.shape[-3:-1]
    rows = torch.cat([torch.zeros(1, dtype=torch.int64), 1 + torch.randperm(N_seq - 1)])
    expected = run(module(form), x)
    if "m" in expected:
        expected["m"] = expected["m"].index_select(-3, rows)
    assert_same(run(module(form), x.reordered(rows, torch.arange(N_res))), expected)


@FORM
@FEW
@given(x=inputs())
def test_reordering_residues_reorders_everything(form: str, x: Inputs) -> None:
    N_seq, N_res = x.m.shape[-3:-1]
    order = torch.randperm(N_res)
    expected = {name: value.index_select(-2, order) for name, value in run(module(form), x).items()}
    expected["z"] = expected["z"].index_select(-3, order)
    assert_same(run(module(form), x.reordered(torch.arange(N_seq), order)), expected)


@FORM
@FEW
@given(x=inputs())
def test_inputs_need_not_be_contiguous(form: str, x: Inputs) -> None:
    def strided(value: Tensor) -> Tensor:
        """Every other element along the last axis of a tensor whose axes lie the other way round in memory."""
        wide = torch.stack([value, value.new_ones(value.shape)], dim=-1).flatten(-2)
        reverse = tuple(reversed(range(wide.ndim)))
        return wide.permute(reverse).contiguous().permute(reverse)[..., ::2]

    assert torch.equal(strided(x.m), x.m)
    assert_same(run(module(form), x.each(strided)), run(module(form), x))


@FORM
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bfloat16, torch.float32, torch.float64])
@settings(FEW, max_examples=5)
@given(x=inputs())
def test_masks_may_have_any_number_type(form: str, dtype: torch.dtype, x: Inputs) -> None:
    other = replace(x, msa_mask=x.msa_mask.to(dtype), pair_mask=x.pair_mask.to(dtype))
    assert_same(run(module(form), other), run(module(form), x))


@FORM
@FEW
@given(x=inputs())
def test_no_mask_is_a_mask_of_ones(form: str, x: Inputs) -> None:
    ones = replace(x, msa_mask=torch.ones_like(x.msa_mask), pair_mask=torch.ones_like(x.pair_mask))
    assert_same(run(module(form), replace(x, msa_mask=None, pair_mask=None)), run(module(form), ones))


@pytest.mark.parametrize("form", [form for form in FORMS if form != "pair stack"])
@FEW
@given(x=inputs())
def test_a_masked_cell_of_the_msa_reaches_no_other(form: str, x: Inputs) -> None:
    other = replace(x, m=torch.where(x.msa_mask[..., None], x.m, 100 * torch.randn_like(x.m)))
    before, after = run(module(form), x), run(module(form), other)
    for results in (before, after):
        if "m" in results:
            results["m"] = results["m"][x.msa_mask]
        if "s" in results:
            results["s"] = results["s"][x.msa_mask[..., 0, :]]
    assert_same(after, before)


@FORM
@FEW
@given(x=inputs())
def test_results_and_gradients_are_finite_in_float32_whatever_is_masked(form: str, x: Inputs) -> None:
    block = copy.deepcopy(module(form)).float()
    m, z = (value.float().requires_grad_() for value in (x.m, x.z))
    results = run(block, replace(x, m=m, z=z))
    sum(value.mean() for value in results.values()).backward()
    gradients = [value.grad for value in (m, z, *block.parameters()) if value.grad is not None]
    assert all(value.isfinite().all() for value in (*results.values(), *gradients))
    assert z.grad is not None
