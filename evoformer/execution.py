"""How a model runs: with which kernel, in what slices, with what recomputed. Set from outside, in no signature."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Op = Literal[
    "attention", "pair_bias", "global_attention", "outer_product_mean", "triangle_multiplication", "transition"
]
Recompute = Literal["none", "layer", "block"]


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How the modules that carry it run. The results are the same; time and memory are not.

    Args:
        kernel: the name of a kernel, or one for each op; an op that the mapping leaves out is "auto". "auto" takes the
            first kernel that can serve: the plain one for small inputs, a leaner one for large inputs.
        slice_size: rows (columns, in column attention) that an op works on at a time; None leaves it to the kernel,
            and the plain kernel works on all at once.
        recompute: what the backward pass computes again instead of keeping it: nothing, the inside of every layer, or
            the whole of every block.
        in_place: whether a block adds its updates in place where no gradient is recorded. Never to a tensor that the
            caller passed in.

    Raises:
        ValueError: an op or a way of recomputing is unknown, or the slice size is not positive.
    """

    kernel: str | Mapping[Op, str] = "auto"
    slice_size: int | None = None
    recompute: Recompute = "none"
    in_place: bool = False

    def __post_init__(self) -> None:
        for op in () if isinstance(self.kernel, str) else self.kernel:
            if op not in get_args(Op):
                raise ValueError(f"kernel names the op {op!r}, expected one of {', '.join(get_args(Op))}")
        if self.slice_size is not None and self.slice_size < 1:
            raise ValueError(f"slice_size is {self.slice_size}, expected at least 1 or None")
        if self.recompute not in get_args(Recompute):
            raise ValueError(f"recompute is {self.recompute!r}, expected one of {', '.join(get_args(Recompute))}")

    def kernel_of(self, op: Op) -> str:
        """The name of the kernel asked for, or "auto"."""
        return self.kernel if isinstance(self.kernel, str) else self.kernel.get(op, "auto")


@runtime_checkable
class Executable(Protocol):
    """A module that carries an `Execution`."""

    execution: Execution


def set_execution(module: nn.Module, execution: Execution) -> None:
    """Have a module, and all modules in it, run so."""
    for part in module.modules():
        if isinstance(part, Executable):
            part.execution = execution


def rows_in_slices(rows: int, size: int | None) -> Iterator[slice]:
    """Slices of at most `size` rows that cover all of them; one slice where the size is None, none without rows."""
    size = size or max(rows, 1)
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def in_slices(step: Callable[[slice], Tensor], rows: int, size: int | None, axis: int) -> Tensor:
    """The results of a step on some rows at a time, put together along an axis."""
    if size is None or size >= rows:
        return step(slice(None))
    return torch.cat([step(part) for part in rows_in_slices(rows, size)], dim=axis)


def recomputed(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step, which keeps only its inputs for the backward pass and runs again there."""

    def run(*inputs: Any) -> Any:
        if not torch.is_grad_enabled():
            return step(*inputs)
        return checkpoint(step, *inputs, use_reentrant=False)

    return run


def added(x: Tensor, update: Tensor, execution: Execution) -> Tensor:
    """x + update, in x's own memory where the execution and the dtypes allow it."""
    if execution.in_place and not torch.is_grad_enabled() and torch.promote_types(x.dtype, update.dtype) == x.dtype:
        return x.add_(update)
    return x + update
