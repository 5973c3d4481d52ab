"""Streamed, sliced, recomputed and in place: blocks and stacks have the reference's numbers, with dropout, too."""

from collections.abc import Callable

import pytest
import torch
from oracles import redrawn
from running import (
    CASES,
    HIDDEN,
    REFERENCE,
    STREAMED,
    N_head,
    N_res,
    assert_same,
    c_m,
    c_z,
    draw,
    draw_mask,
    outcome,
)
from torch import Tensor, nn

from evoformer import EvoformerBlock, EvoformerStack, Execution, ExtraMSABlock, ExtraMSAStack, PairStack, set_execution
from evoformer.kernels import streamed_attention, streaming

PAIR = {"c_tri_mul": 5, "c_tri_att": 2, "N_head_tri": 3, "n_pair_transition": 2}
SMALL = {"c_msa_att": 4, "N_head_msa": 2, "c_opm": 3, "n_msa_transition": 2, **PAIR}
FORMS: dict[str, Callable[[], nn.Module]] = {
    "stack": lambda: EvoformerStack(c_m, c_z, 2, 8, **SMALL),
    "stack, outer product first": lambda: EvoformerStack(c_m, c_z, 2, 8, opm_first=True, **SMALL),
    "stack, centred": lambda: EvoformerStack(c_m, c_z, 2, 8, opm_centered=True, **SMALL),
    "stack without triangle attention": lambda: EvoformerStack(c_m, c_z, 2, 8, **{**SMALL, "N_head_tri": 0}),
    "block": lambda: EvoformerBlock(c_m, c_z, **SMALL),
    "extra block": lambda: ExtraMSABlock(c_m, c_z, **SMALL),
    "extra stack": lambda: ExtraMSAStack(c_m, c_z, 2, **SMALL),
    "extra stack, outer product first": lambda: ExtraMSAStack(c_m, c_z, 2, opm_first=True, **SMALL),
    "pair stack": lambda: PairStack(c_z, **PAIR),
}
FORM = pytest.mark.parametrize("form", FORMS)
KERNEL = pytest.mark.parametrize("kernel", ["reference", "streamed"])
TRAINING = pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "CHUNK_TOKENS", 2 * N_res)
    monkeypatch.setattr(streamed_attention, "LOGITS", 2 * N_head * N_res**2)


def problem(
    form: str, training: bool = False, hidden: str = "cells", dtype: torch.dtype = torch.float64
) -> tuple[nn.Module, list[Tensor], list[Tensor]]:
    """A block, its inputs and its masks, with a batch axis."""
    block = redrawn(FORMS[form](), std=0.3).to(dtype).train(training)
    inputs = draw(CASES["row attention"], 2, dtype=dtype)
    masks = [x for name in ("row attention", "ending node") for x in draw_mask(CASES[name], hidden, 2)]
    return (block, inputs[1:], masks[1:]) if form == "pair stack" else (block, inputs, masks)


@FORM
@TRAINING
def test_streamed_kernels_give_the_references_numbers(form: str, training: bool) -> None:
    block, inputs, masks = problem(form, training)
    assert_same(outcome(block, inputs, masks, STREAMED), outcome(block, inputs, masks, REFERENCE))


@pytest.mark.parametrize("form", ["stack", "extra stack, outer product first"])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_streamed_kernels_give_the_references_numbers_in_float32(form: str, hidden: str) -> None:
    block, inputs, masks = problem(form, hidden=hidden, dtype=torch.float32)
    assert_same(outcome(block, inputs, masks, STREAMED), outcome(block, inputs, masks, REFERENCE))


def test_chunks_of_their_usual_size_give_the_references_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several of each: 80 residues are more than a tile of the outer product mean, 50 rows more than a chunk."""
    monkeypatch.undo()
    block = redrawn(EvoformerBlock(c_m, c_z, **SMALL), std=0.3)
    inputs = draw(CASES["row attention"], N_seq=50, N_res=80, dtype=torch.float64)
    masks = [draw_mask(CASES[name], "cells", N_seq=50, N_res=80)[0] for name in ("row attention", "ending node")]
    assert_same(outcome(block, inputs, masks, STREAMED), outcome(block, inputs, masks, REFERENCE))


@FORM
@TRAINING
@KERNEL
@pytest.mark.parametrize("recompute", ["layer", "block"])
def test_recomputing_changes_nothing(form: str, training: bool, kernel: str, recompute: str) -> None:
    """In training the backward pass draws the dropout of the forward pass again."""
    block, inputs, masks = problem(form, training)
    execution = Execution(kernel=kernel, recompute=recompute)
    assert_same(outcome(block, inputs, masks, execution), outcome(block, inputs, masks, REFERENCE))


@FORM
@KERNEL
@pytest.mark.parametrize("slice_size", [4, 50])
def test_slices_change_nothing(form: str, kernel: str, slice_size: int) -> None:
    block, inputs, masks = problem(form)
    execution = Execution(kernel=kernel, slice_size=slice_size, recompute="layer")
    assert_same(outcome(block, inputs, masks, execution), outcome(block, inputs, masks, REFERENCE))


@FORM
@TRAINING
@KERNEL
@torch.no_grad()
def test_in_place_gives_the_same_and_never_touches_what_the_caller_passed(
    form: str, training: bool, kernel: str
) -> None:
    block, inputs, masks = problem(form, training)
    inputs = [x.detach() for x in inputs]
    before = [x.clone() for x in (*inputs, *masks)]
    found = []
    for in_place in (False, True):
        set_execution(block, Execution(kernel=kernel, in_place=in_place))
        torch.manual_seed(1)
        results = block(*inputs, *masks)
        found.append(dict(enumerate([results] if isinstance(results, Tensor) else results)))
        assert all(torch.equal(x, y) for x, y in zip((*inputs, *masks), before, strict=True))
    assert_same(found[1], found[0])


@pytest.mark.parametrize("form", ["stack", "extra stack", "pair stack"])
def test_in_place_leaves_the_gradients_as_they_are(form: str) -> None:
    """Where a gradient is recorded, nothing is changed in place."""
    block, inputs, masks = problem(form, training=True)
    in_place = Execution(kernel="streamed", in_place=True)
    assert_same(outcome(block, inputs, masks, in_place), outcome(block, inputs, masks, REFERENCE))


@torch.no_grad()
def test_in_place_works_where_updates_are_of_another_dtype() -> None:
    """Under autocast the update is bfloat16 and what it is added to float32."""
    block, inputs, masks = problem("stack", dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = []
        for in_place in (False, True):
            set_execution(block, Execution(kernel="streamed", in_place=in_place))
            m, z, _ = block(*inputs, *masks)
            results.append({"m": m, "z": z})
    assert_same(results[1], results[0])


def kept_for_backward(block: nn.Module, inputs: list[Tensor], execution: Execution) -> int:
    """Bytes of all tensors that the graph of a forward pass holds, weights and inputs left out."""
    known = {x.untyped_storage().data_ptr() for x in (*inputs, *block.parameters())}
    found: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = storage.nbytes()
        return x

    set_execution(block, execution)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        results = block(*inputs)  # which live on, so that no memory is counted twice
    assert results is not None
    return sum(found.values())


def test_less_is_kept_the_more_is_recomputed() -> None:
    block, inputs, _ = problem("block")
    plain = kept_for_backward(block, inputs, REFERENCE)
    none, layer = (
        kept_for_backward(block, inputs, Execution(kernel="streamed", recompute=recompute))
        for recompute in ("none", "layer")
    )
    assert layer < none < plain
