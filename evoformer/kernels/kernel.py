"""A kernel: one way to compute an op."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from evoformer.execution import Execution, in_slices, recomputed


def never(*operands: Any) -> str | None:
    """Refuses nothing."""
    return None


def always(*operands: Any) -> bool:
    """Suits everything."""
    return True


def by_name_only(*operands: Any) -> bool:
    """Suits nothing: for a kernel that "auto" does not take."""
    return False


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which an input or a weight enters a matrix product: autocast's where it is on, and else its own."""
    device = x.device.type
    if torch.is_autocast_enabled(device) and x.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return x.dtype


def forward_mode() -> str | None:
    """The reason to refuse where a forward-mode derivative is being taken."""
    return "it has no forward-mode derivative" if forward_ad._current_level >= 0 else None


@dataclass(frozen=True)
class Kernel:
    """A name, a function and what it is good for. All kernels of an op share the operands and the result.

    Args:
        name: what `Execution(kernel=...)` calls it.
        run: from the operands and an `Execution` to the result.
        refuses: from the operands to the reason why the kernel cannot serve them, or None.
        suits: from operands that are not refused to whether "auto" should take the kernel.
    """

    name: str
    run: Callable[..., Tensor]
    refuses: Callable[..., str | None] = never
    suits: Callable[..., bool] = always


@dataclass(frozen=True)
class InSlices:
    """A function of operands and `rows`, run on some rows at a time and recomputed as an `Execution` says.

    Args:
        function: from the operands and a slice of rows to those rows of the result.
        rows_axis: the axis of the first operand that is cut into slices.
        axis: the same axis of the result.
    """

    function: Callable[..., Tensor]
    rows_axis: int
    axis: int

    def __call__(self, *operands: Any, execution: Execution) -> Tensor:
        """The result."""
        step = recomputed(self.function) if execution.recompute == "layer" else self.function
        rows = operands[0].shape[self.rows_axis]
        return in_slices(lambda part: step(*operands, part), rows, execution.slice_size, self.axis)
