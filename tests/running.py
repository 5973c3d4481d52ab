"""Every layer, what it takes, and how two ways of running a module are compared: by output and by all gradients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from evoformer import (
    Execution,
    MSAColumnAttention,
    MSAColumnGlobalAttention,
    MSARowAttentionWithPairBias,
    MSATransition,
    OuterProductMean,
    PairTransition,
    TriangleAttention,
    TriangleMultiplication,
    set_execution,
)

N_seq, N_res, c_m, c_z, c, N_head = 6, 7, 11, 10, 4, 3  # all different: no swapped axis can hide
REFERENCE, STREAMED = Execution(kernel="reference"), Execution(kernel="streamed")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}  # times the largest number of the reference, or 1
HIDDEN = ["nothing", "cells", "cells, a row and a column", "everything"]


@dataclass(frozen=True)
class Case:
    """A layer, what it takes, "m", "z" or both, and which of them its mask covers."""

    build: Callable[[], nn.Module]
    takes: str
    mask: str | None


CASES = {
    "row attention": Case(lambda: MSARowAttentionWithPairBias(c_m, c_z, c, N_head), "mz", "m"),
    "column attention": Case(lambda: MSAColumnAttention(c_m, c, N_head), "m", "m"),
    "global column attention": Case(lambda: MSAColumnGlobalAttention(c_m, c, N_head), "m", "m"),
    "MSA transition": Case(lambda: MSATransition(c_m, 2), "m", None),
    "outer product mean": Case(lambda: OuterProductMean(c_m, c_z, c), "m", "m"),
    "outer product mean, centred": Case(lambda: OuterProductMean(c_m, c_z, c, centered=True), "m", "m"),
    "outgoing edges": Case(lambda: TriangleMultiplication(c_z, "outgoing", c), "z", "z"),
    "incoming edges": Case(lambda: TriangleMultiplication(c_z, "incoming", c), "z", "z"),
    "starting node": Case(lambda: TriangleAttention(c_z, "starting_node", c, N_head), "z", "z"),
    "ending node": Case(lambda: TriangleAttention(c_z, "ending_node", c, N_head), "z", "z"),
    "pair transition": Case(lambda: PairTransition(c_z, 2), "z", None),
}
MASKED = [name for name, case in CASES.items() if case.mask]
# A layer for each op: row attention has two of them.
OPS = [
    "row attention",
    "global column attention",
    "outer product mean, centred",
    "outgoing edges",
    "pair transition",
]


def draw(case: Case, *batch: int, N_seq: int = N_seq, N_res: int = N_res, dtype: torch.dtype) -> list[Tensor]:
    """The layer's tensors, which ask for gradients."""
    shapes = {"m": (*batch, N_seq, N_res, c_m), "z": (*batch, N_res, N_res, c_z)}
    return [torch.randn(shapes[name], dtype=dtype, requires_grad=True) for name in case.takes]


def draw_mask(case: Case, hidden: str, *batch: int, N_seq: int = N_seq, N_res: int = N_res) -> list[Tensor]:
    """The layer's mask, if it has one; no symmetry in that of a pair."""
    if case.mask is None:
        return []
    mask = torch.rand(*batch, N_seq if case.mask == "m" else N_res, N_res) > 0.3
    if hidden == "cells, a row and a column":
        mask[..., -1, :] = mask[..., :, N_res // 2] = False
    if hidden in ("nothing", "everything"):
        mask = torch.full_like(mask, hidden == "nothing")
    return [mask.long()]


def outcome(
    module: nn.Module, inputs: Sequence[Tensor], masks: Sequence[Tensor | None], execution: Execution
) -> dict[str, Tensor]:
    """The results of a module and the gradients of all that asks for one, by name."""
    set_execution(module, execution)
    torch.manual_seed(1)  # the same dropout each time
    results = module(*inputs, *masks)
    results = (results,) if isinstance(results, Tensor) else results
    named = {f"input {i}": x for i, x in enumerate(inputs)} | dict(module.named_parameters())
    leaves = {name: x for name, x in named.items() if x.requires_grad}
    # Drawn by shape: `randn_like` draws in the order of memory, which may differ.
    directions = [torch.randn(x.shape, dtype=torch.float64).to(x.dtype) for x in results]
    # Not every weight of an extra-MSA stack reaches its result.
    gradients = torch.autograd.grad(results, list(leaves.values()), directions, allow_unused=True)
    found = {f"gradient of {name}": x for name, x in zip(leaves, gradients, strict=True) if x is not None}
    return {f"result {i}": x.detach() for i, x in enumerate(results)} | found


def assert_same(ours: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float | None = None) -> None:
    """Equal up to a tolerance, that of the dtype if none is given, times the largest number or 1."""
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        assert (ours[name].shape, ours[name].dtype) == (value.shape, value.dtype), name
        difference = ((ours[name] - value).abs().max() / value.abs().max().clamp(min=1)).item()
        assert difference <= (TOLERANCE[value.dtype] if tolerance is None else tolerance), (name, difference)


def errors(ours: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    """In the Frobenius norm, of results and of all gradients together: single ones may be zero but for rounding."""
    found = {}
    for kind in ("result", "gradient"):
        pairs = [(ours[name].double(), x.double()) for name, x in exact.items() if name.startswith(kind)]
        distance = sum((x - y).square().sum() for x, y in pairs)
        found[kind] = (distance / sum(y.square().sum() for _, y in pairs)).sqrt().item()
    return found
