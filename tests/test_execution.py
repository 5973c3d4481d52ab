"""Execution: what it may be, how it reaches modules, which kernel serves, and what is refused with which reason."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracles import redrawn
from running import CASES, OPS, REFERENCE, STREAMED, assert_same, draw, outcome
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from evoformer import (
    EvoformerBlock,
    EvoformerStack,
    Execution,
    ExtraMSABlock,
    KernelError,
    PairTransition,
    kernels_used,
    set_execution,
)

c_m, c_z = 11, 10
SMALL = {"c_msa_att": 4, "N_head_msa": 2, "c_opm": 3, "c_tri_mul": 5, "c_tri_att": 2, "N_head_tri": 3}
ALL_OPS = {"attention", "pair_bias", "global_attention", "outer_product_mean", "triangle_multiplication", "transition"}


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evoformer.kernels.streaming.SMALL", 0)


@pytest.fixture
def transition() -> PairTransition:
    return redrawn(PairTransition(c_z))


def draw_z() -> Tensor:
    return torch.randn(7, 7, c_z, dtype=torch.float64)


def used_by(module: nn.Module, *inputs: Tensor) -> dict[str, set[str]]:
    """The kernels that ran for each op."""
    with kernels_used() as used:
        module(*inputs)
    kernels: dict[str, set[str]] = {}
    for op, kernel in used:
        kernels.setdefault(op, set()).add(kernel)
    return kernels


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slice_size": 0}, "slice_size is 0, expected at least 1 or None"),
        ({"slice_size": -3}, "slice_size is -3, expected at least 1 or None"),
        ({"recompute": "all"}, "recompute is 'all', expected one of none, layer, block"),
        ({"kernel": {"atention": "streamed"}}, "kernel names the op 'atention', expected one of attention, pair_bias"),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_a_mistake_is_an_error_that_names_what_may_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Execution(**options)


def test_equal_executions_are_equal_and_stay_as_they_are() -> None:
    assert Execution(slice_size=3) == Execution(slice_size=3) != Execution()
    with pytest.raises(AttributeError):
        Execution().slice_size = 3


@pytest.mark.parametrize("kernel", ["fast", {"transition": "fast"}])
def test_an_unknown_kernel_is_an_error_that_lists_the_known(transition: PairTransition, kernel: Any) -> None:
    transition.execution = Execution(kernel=kernel)
    with pytest.raises(KernelError, match="'fast' is unknown for transition, expected auto or one of streamed, ref"):
        transition(draw_z())


def test_each_op_may_have_its_own_kernel() -> None:
    block = redrawn(EvoformerBlock(c_m, c_z, **SMALL), std=0.3)
    inputs = draw(CASES["row attention"], dtype=torch.float64)
    set_execution(block, Execution(kernel={"attention": "streamed", "outer_product_mean": "reference"}))
    found = used_by(block, *inputs)
    assert found == {op: {"reference"} for op in ALL_OPS - {"global_attention"}} | {"attention": {"streamed"}}


@pytest.mark.parametrize("build", [CASES[name].build for name in OPS], ids=OPS)
def test_auto_takes_the_reference_for_small_inputs_and_streams_large_ones(
    build: Callable[[], nn.Module], request: pytest.FixtureRequest
) -> None:
    layer = redrawn(build())
    case = next(case for case in CASES.values() if case.build is build)
    inputs = draw(case, dtype=torch.float64)
    small = used_by(layer, *inputs)
    expected = layer(*inputs)
    request.getfixturevalue("everything_is_large")
    large = used_by(layer, *inputs)
    assert small.keys() == large.keys()
    assert set().union(*small.values()) == {"reference"}
    assert set().union(*large.values()) == {"streamed"}
    assert_same({"update": layer(*inputs)}, {"update": expected})


def test_kernels_used_counts_calls_inside_the_with_and_may_be_nested(transition: PairTransition) -> None:
    with kernels_used() as outer:
        transition(draw_z())
        with kernels_used() as inner:
            transition(draw_z())
        transition.execution = STREAMED
        transition(draw_z())
    transition(draw_z())
    assert outer == {("transition", "reference"): 2, ("transition", "streamed"): 1}
    assert inner == {("transition", "reference"): 1}


def test_set_execution_reaches_every_part_and_changes_nothing_else() -> None:
    trunk = nn.ModuleDict({"main": EvoformerStack(c_m, c_z, 2, 8, **SMALL), "extra": ExtraMSABlock(c_m, c_z, **SMALL)})
    before = {name: x.clone() for name, x in trunk.state_dict().items()}
    inputs = [x.detach().float() for x in draw(CASES["row attention"], dtype=torch.float32)]
    set_execution(trunk, STREAMED)
    for block in trunk.values():
        assert set().union(*used_by(block, *inputs).values()) == {"streamed"}
    assert used_by(EvoformerBlock(c_m, c_z, **SMALL), *inputs)["attention"] == {"reference"}
    assert {name: x.tolist() for name, x in trunk.state_dict().items()} == {k: x.tolist() for k, x in before.items()}
    set_execution(trunk, REFERENCE)
    assert set().union(*used_by(trunk["main"], *inputs).values()) == {"reference"}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_a_copy_runs_as_its_original(copied: Callable[[nn.Module], nn.Module]) -> None:
    block = EvoformerBlock(c_m, c_z, **SMALL)
    set_execution(block, Execution(kernel={"transition": "streamed"}, slice_size=3, recompute="layer"))
    other = copied(block)
    assert other.pair_stack.pair_transition.execution == block.execution
    inputs = draw(CASES["row attention"], dtype=torch.float32)
    assert used_by(other, *inputs) == used_by(block, *inputs)


class LowRank(nn.Module):
    """An adapter around a linear layer, as fine-tuning puts it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        self.down, self.up = nn.Linear(linear.in_features, 2, dtype=torch.float64), nn.Linear(2, linear.out_features)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.up(self.down(x))


def with_adapter(layer: PairTransition) -> None:
    layer.linear_1 = LowRank(layer.linear_1)


def with_subclass(layer: PairTransition) -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    layer.linear_1 = Doubled(c_z, 4 * c_z, dtype=torch.float64)


def with_forward_of_its_own(layer: PairTransition) -> None:
    forward = layer.linear_1.forward
    layer.linear_1.forward = lambda x: 2 * forward(x)


def with_another_eps(layer: PairTransition) -> None:
    layer.layer_norm = nn.LayerNorm(c_z, eps=0.1, dtype=torch.float64)


def with_a_norm_without_bias(layer: PairTransition) -> None:
    layer.layer_norm = nn.LayerNorm(c_z, bias=False, dtype=torch.float64)


def with_a_norm_without_weights(layer: PairTransition) -> None:
    layer.layer_norm = nn.LayerNorm(c_z, elementwise_affine=False, dtype=torch.float64)


REPLACED = [
    (with_adapter, "a part is LowRank"),
    (with_subclass, "a part is Doubled"),
    (with_forward_of_its_own, "a Linear has a forward of its own"),
    (with_another_eps, r"eps of 1e-05, and a part is LayerNorm\(\(10,\), eps=0.1"),
    (with_a_norm_without_bias, "LayerNorms with a bias"),
    (with_a_norm_without_weights, "LayerNorms with a bias"),
]


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize(("replace", "reason"), REPLACED)
def test_a_part_that_is_more_than_its_parameters_is_left_to_the_reference(
    transition: PairTransition, replace: Callable[[PairTransition], None], reason: str
) -> None:
    replace(transition)
    z = draw_z()
    transition.execution = REFERENCE
    expected = transition(z)
    transition.execution = Execution()
    assert used_by(transition, z) == {"transition": {"reference"}}
    assert torch.equal(transition(z), expected)
    transition.execution = STREAMED
    with pytest.raises(KernelError, match=f"'streamed' cannot serve transition: .*{reason}"):
        transition(z)


HOOKS: dict[str, Callable[[nn.Module, Callable[..., None]], Any]] = {
    "forward": nn.Module.register_forward_hook,
    "forward pre": nn.Module.register_forward_pre_hook,
    "full backward": nn.Module.register_full_backward_hook,
    "full backward pre": nn.Module.register_full_backward_pre_hook,
}


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("register", HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize("part", ["layer_norm", "linear_1", "linear_2"])
def test_a_hook_on_a_part_fires_and_is_refused_by_name(
    transition: PairTransition, register: Callable[..., Any], part: str
) -> None:
    fired: list[str] = []
    handle = register(getattr(transition, part), lambda *args: fired.append(part))
    transition(draw_z().requires_grad_()).sum().backward()
    assert fired == [part]
    transition.execution = STREAMED
    with pytest.raises(KernelError, match="has hooks"):
        transition(draw_z())
    handle.remove()
    assert used_by(transition, draw_z()) == {"transition": {"streamed"}}


@pytest.mark.usefixtures("everything_is_large")
def test_a_parametrised_weight_has_the_references_update_and_gradients(transition: PairTransition) -> None:
    parametrizations.weight_norm(transition.linear_1)
    z = [draw_z().requires_grad_()]
    assert_same(outcome(transition, z, [], STREAMED), outcome(transition, z, [], REFERENCE))


@pytest.mark.usefixtures("everything_is_large")
def test_an_input_of_another_dtype_is_refused_with_both(transition: PairTransition) -> None:
    transition.execution = STREAMED
    with pytest.raises(KernelError, match=r"x is torch.float32, the parameters of a LayerNorm are torch.float64"):
        transition(draw_z().float())


@pytest.mark.usefixtures("everything_is_large")
def test_what_runs_can_be_looked_up_while_it_compiles(transition: PairTransition) -> None:
    torch._dynamo.reset()
    compiled, z = torch.compile(transition, backend="aot_eager"), draw_z()
    with kernels_used() as used:
        update = compiled(z)
    assert set(used) == {("transition", "streamed")}
    assert_same({"update": update}, {"update": transition(z)})
