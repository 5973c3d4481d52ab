"""Streamed kernels under PyTorch's transforms: compiled, exported, mapped, recomputed, cast and distributed."""

import copy
from pathlib import Path

import pytest
import torch
from oracles import redrawn
from running import (
    CASES,
    OPS,
    REFERENCE,
    STREAMED,
    assert_same,
    c_m,
    c_z,
    draw,
    draw_mask,
    errors,
    outcome,
)
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacrev, jvp, stack_module_state, vmap
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from evoformer import EvoformerBlock, Execution, ExtraMSABlock, KernelError, kernels_used, set_execution

SMALL = {"c_msa_att": 4, "N_head_msa": 2, "c_opm": 3, "c_tri_mul": 5, "c_tri_att": 2, "N_head_tri": 3}
OP = pytest.mark.parametrize("name", OPS)


@pytest.fixture(autouse=True)
def _nothing_compiled_before(without_shape_checks: None) -> None:
    """The checks of shapes know nothing of the tensors inside a transform."""
    torch._dynamo.reset()


def problem(name: str, *batch: int, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, list[Tensor], list[Tensor]]:
    """A layer that runs streamed, its inputs and its mask."""
    case = CASES[name]
    layer = redrawn(case.build()).to(dtype)
    set_execution(layer, STREAMED)
    return layer, draw(case, *batch, dtype=dtype), draw_mask(case, "cells, a row and a column", *batch)


def loss_of(layer: nn.Module, parameters: dict[str, Tensor], inputs: tuple[Tensor, ...], *masks: Tensor) -> Tensor:
    """A number that depends on all of the update."""
    return functional_call(layer, parameters, (*inputs, *masks)).square().sum()


def parameters_of(layer: nn.Module) -> dict[str, Tensor]:
    return {name: x.detach() for name, x in layer.named_parameters()}


def named(gradients: tuple[dict[str, Tensor], tuple[Tensor, ...]]) -> dict[str, Tensor]:
    """Of parameters and inputs, in one dict."""
    parameters, inputs = gradients
    return parameters | {f"input {i}": x for i, x in enumerate(inputs)}


def by_autograd(layer: nn.Module, inputs: tuple[Tensor, ...], *masks: Tensor) -> dict[str, Tensor]:
    """The gradients of the loss through the reference kernel, in the form of `named`."""
    set_execution(layer, REFERENCE)
    inputs = tuple(x.detach().requires_grad_() for x in inputs)
    parameters = {name: x.detach().requires_grad_() for name, x in layer.named_parameters()}
    gradients = torch.autograd.grad(loss_of(layer, parameters, inputs, *masks), (*parameters.values(), *inputs))
    return named((dict(zip(parameters, gradients, strict=False)), gradients[len(parameters) :]))


@OP
def test_compiles_whole_forward_and_backward(name: str) -> None:
    layer, inputs, masks = problem(name, 2)
    expected = outcome(layer, inputs, masks, REFERENCE)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_same(outcome(compiled, inputs, masks, STREAMED), {_compiled(k): x for k, x in expected.items()})
    with torch.no_grad():
        assert_same({"update": compiled(*inputs, *masks)}, {"update": expected["result 0"]})


def _compiled(name: str) -> str:
    """A compiled module puts a prefix before the names of its parameters."""
    kind = "gradient of "
    is_weight = name.startswith(kind) and "input" not in name
    return f"{kind}_orig_mod.{name.removeprefix(kind)}" if is_weight else name


@OP
def test_compiles_once_for_any_sizes(name: str) -> None:
    layer, *_ = problem(name)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for N_seq, N_res in [(6, 7), (5, 9)]:
        inputs = draw(CASES[name], N_seq=N_seq, N_res=N_res, dtype=torch.float64)
        masks = draw_mask(CASES[name], "cells", N_seq=N_seq, N_res=N_res)
        with torch._dynamo.config.patch(error_on_recompile=N_seq == 5):
            ours = outcome(compiled, inputs, masks, STREAMED)
        expected = outcome(layer, inputs, masks, REFERENCE)
        assert_same(ours, {_compiled(k): x for k, x in expected.items()})


@pytest.mark.parametrize("recompute", ["layer", "block"])
def test_a_block_compiles_whole_with_what_it_recomputes(recompute: str) -> None:
    block = redrawn(ExtraMSABlock(c_m, c_z, **SMALL), std=0.3)
    inputs = draw(CASES["row attention"], dtype=torch.float64)
    expected = outcome(block, inputs, [], REFERENCE)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    execution = Execution(kernel="streamed", recompute=recompute)
    assert_same(outcome(compiled, inputs, [], execution), {_compiled(k): x for k, x in expected.items()})


@torch.no_grad()
def test_a_block_compiles_whole_in_place() -> None:
    block = redrawn(ExtraMSABlock(c_m, c_z, **SMALL), std=0.3)
    inputs = draw(CASES["row attention"], dtype=torch.float64)
    expected = dict(enumerate(block(*inputs)))
    set_execution(block, Execution(kernel="streamed", in_place=True))
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    assert_same(dict(enumerate(compiled(*inputs))), expected)


@pytest.mark.slow
def test_a_block_compiles_with_inductor() -> None:
    block = redrawn(ExtraMSABlock(c_m, c_z, **SMALL), std=0.3)
    inputs = [*draw(CASES["row attention"], dtype=torch.float64)]
    masks = [*draw_mask(CASES["row attention"], "cells"), *draw_mask(CASES["outgoing edges"], "cells")]
    expected = outcome(block, inputs, masks, REFERENCE)
    compiled = torch.compile(block, fullgraph=True)
    assert_same(outcome(compiled, inputs, masks, STREAMED), {_compiled(k): x for k, x in expected.items()})


@OP
def test_exports_with_fixed_sizes(name: str) -> None:
    layer, inputs, masks = problem(name, 2)
    program = torch.export.export(layer, (*inputs, *masks))
    assert any("evoformer" in str(node.target) for node in program.graph.nodes)
    assert_same({"update": program.module()(*inputs, *masks)}, {"update": layer(*inputs, *masks)})


@OP
@pytest.mark.parametrize("execution", [STREAMED, Execution()], ids=["streamed", "auto"])
def test_exports_with_any_number_of_sequences_and_residues(name: str, execution: Execution) -> None:
    """A size that is not known is large."""
    layer, inputs, masks = problem(name)
    N_seq, N_res = torch.export.Dim("N_seq", min=2, max=64), torch.export.Dim("N_res", min=2, max=64)
    axes = {"m": {0: N_seq, 1: N_res}, "z": {0: N_res, 1: N_res}}
    kinds = [*CASES[name].takes, *(CASES[name].mask or "")]
    set_execution(layer, execution)
    program = torch.export.export(layer, (*inputs, *masks), dynamic_shapes=tuple(axes[kind] for kind in kinds))
    assert any("evoformer" in str(node.target) for node in program.graph.nodes)
    for rows, residues in [(6, 7), (3, 12)]:
        inputs = draw(CASES[name], N_seq=rows, N_res=residues, dtype=torch.float64)
        masks = draw_mask(CASES[name], "cells", N_seq=rows, N_res=residues)
        assert_same({"update": program.module()(*inputs, *masks)}, {"update": layer(*inputs, *masks)})


@OP
def test_functional_gradients_are_the_references(name: str) -> None:
    layer, inputs, masks = problem(name)
    inputs = tuple(x.detach() for x in inputs)
    ours = grad(lambda p, x: loss_of(layer, p, x, *masks), argnums=(0, 1))(parameters_of(layer), inputs)
    assert_same(named(ours), by_autograd(layer, inputs, *masks))


@OP
def test_maps_over_inputs(name: str) -> None:
    layer, inputs, masks = problem(name, 3)
    assert_same({"update": vmap(layer)(*inputs, *masks)}, {"update": layer(*inputs, *masks)})
    first = [x[0] for x in masks]
    ours = vmap(lambda *x: layer(*x, *first))(*inputs)
    assert_same({"update": ours}, {"update": layer(*inputs, *(x.expand(3, *x.shape) for x in first))})


@OP
def test_maps_over_per_sample_gradients(name: str) -> None:
    layer, inputs, masks = problem(name, 3)
    inputs = tuple(x.detach() for x in inputs)
    gradients = grad(lambda p, x, *mask: loss_of(layer, p, x, *mask), argnums=(0, 1))
    each = named(vmap(gradients, in_dims=(None, 0, *(0 for _ in masks)))(parameters_of(layer), inputs, *masks))
    for i in range(3):
        expected = by_autograd(layer, tuple(x[i] for x in inputs), *(x[i] for x in masks))
        assert_same({key: x[i] for key, x in each.items()}, expected)


@OP
def test_maps_over_stacked_weights(name: str) -> None:
    layer, inputs, masks = problem(name)
    layers = [layer, redrawn(copy.deepcopy(layer))]
    parameters, buffers = stack_module_state(layers)
    ours = vmap(lambda p, b: functional_call(layer, (p, b), (*inputs, *masks)))(parameters, buffers)
    assert_same({"updates": ours}, {"updates": torch.stack([layer(*inputs, *masks) for layer in layers])})


@OP
def test_a_checkpoint_around_it_changes_nothing(name: str) -> None:
    layer, inputs, masks = problem(name)
    expected = outcome(layer, inputs, masks, STREAMED)
    forward = layer.forward
    layer.forward = lambda *x: checkpoint(forward, *x, use_reentrant=False)
    assert_same(outcome(layer, inputs, masks, STREAMED), expected)


@OP
def test_autocast_is_near_float32_and_returns_what_the_reference_returns(name: str) -> None:
    layer, inputs, masks = problem(name, dtype=torch.float32)
    exact = outcome(layer, inputs, masks, REFERENCE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, ours = (outcome(layer, inputs, masks, execution) for execution in (REFERENCE, STREAMED))
    assert {key: x.dtype for key, x in ours.items()} == {key: x.dtype for key, x in expected.items()}
    usual = errors(expected, exact)
    for kind, error in errors(ours, exact).items():
        assert error <= max(2e-2, 1.2 * usual[kind]), kind


@OP
@pytest.mark.parametrize("execution", [STREAMED, Execution()], ids=["streamed", "auto"])
def test_forward_mode_is_left_to_the_reference(
    name: str, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evoformer.kernels.streaming.SMALL", 0)
    layer, inputs, masks = problem(name)
    inputs = tuple(x.detach() for x in inputs)
    directions = tuple(torch.randn(x.shape, dtype=x.dtype) for x in inputs)
    set_execution(layer, REFERENCE)
    _, expected = jvp(lambda *x: layer(*x, *masks), inputs, directions)
    set_execution(layer, execution)
    if execution == STREAMED:
        with pytest.raises(KernelError, match="no forward-mode derivative"):
            jvp(lambda *x: layer(*x, *masks), inputs, directions)
        with forward_ad.dual_level(), pytest.raises(KernelError, match="no forward-mode derivative"):
            layer(*(forward_ad.make_dual(x, d) for x, d in zip(inputs, directions, strict=True)), *masks)
        return
    _, ours = jvp(lambda *x: layer(*x, *masks), inputs, directions)
    assert_same({"derivative": ours}, {"derivative": expected})
    with forward_ad.dual_level():
        update = layer(*(forward_ad.make_dual(x, d) for x, d in zip(inputs, directions, strict=True)), *masks)
        assert_same({"derivative": forward_ad.unpack_dual(update).tangent}, {"derivative": expected})
    with kernels_used() as used:
        layer(*inputs, *masks)
    assert {kernel for _, kernel in used} == {"streamed"}


@OP
def test_a_second_derivative_is_refused_with_the_kernel_that_has_one(name: str) -> None:
    layer, inputs, masks = problem(name)

    def twice() -> None:
        gradients = torch.autograd.grad(layer(*inputs, *masks).square().sum(), inputs, create_graph=True)
        sum(x.square().sum() for x in gradients).backward()

    with pytest.raises(NotImplementedError, match='Execution\\(kernel="reference"\\)'):
        twice()
    with pytest.raises(NotImplementedError, match='Execution\\(kernel="reference"\\)'):
        jacrev(jacrev(lambda x: layer(x, *inputs[1:], *masks).square().sum()))(inputs[0].detach())
    set_execution(layer, REFERENCE)
    twice()
    assert all(x.grad.isfinite().all() for x in inputs)


def _train_on_two(rank: int, folder: Path) -> None:
    """One process of two: the gradients of its half of the batch, averaged over both."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    block, inputs = torch.load(folder / "problem.pt", weights_only=False)
    parallel = DistributedDataParallel(block)
    sum(x.square().mean() for x in parallel(*(x[rank : rank + 1] for x in inputs))).backward()
    if rank == 0:
        torch.save({name: x.grad for name, x in block.named_parameters()}, folder / "gradients.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_have_the_gradients_of_one(tmp_path: Path) -> None:
    block = redrawn(EvoformerBlock(c_m, c_z, **SMALL), std=0.3)
    inputs = [x.detach() for x in draw(CASES["row attention"], 2, dtype=torch.float64)]
    set_execution(block, STREAMED)
    torch.save((block, inputs), tmp_path / "problem.pt")
    torch.multiprocessing.spawn(_train_on_two, (tmp_path,), nprocs=2)
    set_execution(block, REFERENCE)
    sum(x.square().mean() for x in block(*inputs)).backward()
    assert_same(torch.load(tmp_path / "gradients.pt"), {name: x.grad for name, x in block.named_parameters()})
