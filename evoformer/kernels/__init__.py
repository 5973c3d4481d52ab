"""How an op may be computed. `KERNELS` lists each op's kernels in the order in which "auto" tries them."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from evoformer.errors import InputError
from evoformer.execution import Execution, Op
from evoformer.kernels import (
    cuequivariance,
    deepspeed,
    reference,
    sdpa,
    streamed_attention,
    streamed_global_attention,
    streamed_outer_product_mean,
    streamed_pair_bias,
    streamed_transition,
    streamed_triangle_multiplication,
    trifast,
    triton_attention,
)
from evoformer.kernels.kernel import InSlices, Kernel


def _plain(function: Callable[..., Tensor], rows_axis: int, axis: int) -> Kernel:
    return Kernel("reference", InSlices(function, rows_axis, axis))


KERNELS: dict[Op, list[Kernel]] = {
    "attention": [
        streamed_attention.KERNEL,
        _plain(reference.gated_attention, 1, 1),
        sdpa.KERNEL,
        triton_attention.KERNEL,
        cuequivariance.ATTENTION,
        trifast.KERNEL,
        deepspeed.KERNEL,
    ],
    "global_attention": [streamed_global_attention.KERNEL, _plain(reference.global_attention, 1, 1)],
    "pair_bias": [streamed_pair_bias.KERNEL, _plain(reference.pair_bias, 1, 2)],
    "outer_product_mean": [streamed_outer_product_mean.KERNEL, _plain(reference.outer_product_mean, 2, 1)],
    "triangle_multiplication": [
        streamed_triangle_multiplication.KERNEL,
        _plain(reference.triangle_multiplication, 1, 1),
        cuequivariance.TRIANGLE_MULTIPLICATION,
    ],
    "transition": [streamed_transition.KERNEL, _plain(reference.transition, 0, 0)],
}

_records: list[Counter[tuple[Op, str]]] = []


class KernelError(InputError):
    """The kernel asked for is unknown or cannot serve."""


def choose(op: Op, execution: Execution, *operands: Any) -> Kernel:
    """The kernel that an execution asks for, or for "auto" the first that suits the operands.

    Raises:
        KernelError: the kernel is unknown, or refuses; the message has its reason.
    """
    name = execution.kernel_of(op)
    if name == "auto":
        kernel = next(k for k in KERNELS[op] if k.refuses(*operands) is None and k.suits(*operands))
    else:
        kernel = _named(op, name)
        reason = kernel.refuses(*operands)
        if reason is not None:
            raise KernelError(f"kernel {name!r} cannot serve {op}: {reason}")
    for record in _records:
        record[op, kernel.name] += 1
    return kernel


@contextmanager
def kernels_used() -> Iterator[Counter[tuple[Op, str]]]:
    """Count what runs: op and name of the kernel of every call inside the `with`."""
    record: Counter[tuple[Op, str]] = Counter()
    _records.append(record)
    try:
        yield record
    finally:
        _records.remove(record)


def _named(op: Op, name: str) -> Kernel:
    for kernel in KERNELS[op]:
        if kernel.name == name:
            return kernel
    names = ", ".join(kernel.name for kernel in KERNELS[op])
    raise KernelError(f"kernel {name!r} is unknown for {op}, expected auto or one of {names}")
