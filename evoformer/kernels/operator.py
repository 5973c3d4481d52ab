"""Operators with a gradient of their own that all of PyTorch's transforms see as one step.

A pair of functions, forward and backward, becomes two operators of a `torch.library.Library`, without an autograd key,
under an `autograd.Function` with a separate `setup_context`. That form goes through `torch.compile(fullgraph=True)`,
`torch.export`, `torch.func.grad`, vmap of grad, non-reentrant checkpointing and autocast; `torch.library.custom_op`
with `register_autograd` does not go through `torch.func.grad` in PyTorch 2.13.
"""

from collections.abc import Callable
from typing import Any, get_type_hints

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

_LIBRARY = torch.library.Library("evoformer", "FRAGMENT")
_SCHEMA_TYPES = {Tensor: "Tensor", Tensor | None: "Tensor?", int: "SymInt", float: "float", bool: "bool"}
_WORKSPACES: dict[Any, Callable[..., int]] = {}
_NO_SECOND_DERIVATIVE = 'a streamed kernel has no second derivative; Execution(kernel="reference") has'


def _no_workspace(inputs: Any) -> tuple[int, int]:
    return 0, 0


def define(
    name: str,
    Inputs: Callable[..., Any],
    forward: Callable[[Any], tuple[Tensor, ...]],
    backward: Callable[..., tuple[Tensor, ...]],
    results: Callable[[Any], tuple[Tensor, ...]],
    n_differentiable: int,
    workspace: Callable[[Any], tuple[int, int]] = _no_workspace,
    keeps_result: bool = False,
) -> Callable[[Any], Tensor]:
    """The operator evoformer::name and its gradient, as one differentiable function.

    Args:
        name: of the operator.
        Inputs: the NamedTuple of its inputs, tensors and numbers.
        forward: from the inputs to the result and two tensors that it kept for the backward pass, empty or not.
        backward: from the result's gradient, the inputs and what was kept to the gradients of the first inputs, an
            empty tensor for one that is None.
        results: as `forward`, but empty tensors: only shapes, strides and dtypes count.
        n_differentiable: how many of the first inputs have a gradient.
        workspace: from the inputs to the number of elements that forward and backward pass hold beside their results
            at the most, for `memory.estimate_memory`.
        keeps_result: whether the result takes the place of the second tensor that is kept.

    Returns:
        A function from the inputs to the result.
    """
    types = [_SCHEMA_TYPES[hint] for hint in get_type_hints(Inputs).values()]
    fields = ", ".join(f"{kind} {field}" for kind, field in zip(types, get_type_hints(Inputs), strict=True))
    is_tensor = [kind.startswith("Tensor") for kind in types]

    def backward_of(grad: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
        return backward(grad, Inputs(*inputs[: len(types)]), *inputs[len(types) :])

    def gradients(grad: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
        return tuple(grad.new_empty(0) if x is None else torch.empty_like(x) for x in inputs[:n_differentiable])

    run = _operator(
        name,
        f"({fields}) -> ({_tensors(3)})",
        lambda *inputs: forward(Inputs(*inputs)),
        lambda *inputs: results(Inputs(*inputs)),
        lambda *inputs: workspace(Inputs(*inputs))[0],
    )
    run_backward = _operator(
        f"{name}_backward",
        f"(Tensor grad, {fields}, Tensor kept, Tensor also_kept) -> ({_tensors(n_differentiable)})",
        backward_of,
        gradients,
        lambda grad, *inputs: workspace(Inputs(*inputs[: len(types)]))[1],
    )

    class Gradient(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*inputs: Any) -> tuple[Tensor, ...]:
            return run_backward(*inputs)

        @staticmethod
        def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            pass

        @staticmethod
        def backward(ctx: FunctionCtx, *grads: Tensor) -> Any:
            raise NotImplementedError(_NO_SECOND_DERIVATIVE)

    class Operation(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*inputs: Any) -> tuple[Tensor, ...]:
            return run(*inputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
            result, kept, also_kept = output
            ctx.mark_non_differentiable(kept, also_kept)
            ctx.set_materialize_grads(False)  # zeros for what was kept would be as large as it is
            also_kept = result if keeps_result else also_kept
            ctx.save_for_backward(*(x for x, tensor in zip(inputs, is_tensor, strict=True) if tensor), kept, also_kept)
            ctx.numbers = [x for x, tensor in zip(inputs, is_tensor, strict=True) if not tensor]

        @staticmethod
        def backward(ctx: Any, grad: Tensor | None, *_: None) -> Any:
            if grad is None:
                return (None,) * len(is_tensor)
            saved, numbers = iter(ctx.saved_tensors), iter(ctx.numbers)
            inputs = [next(saved) if tensor else next(numbers) for tensor in is_tensor]
            # A compiled graph takes no second derivative, so it needs none refused.
            step = run_backward if torch.compiler.is_compiling() else Gradient.apply
            grads = step(grad, *inputs, *saved)
            nothing = [None] * (len(inputs) - n_differentiable)
            return *(None if x is None else g for x, g in zip(inputs, grads, strict=False)), *nothing

    def differentiable(inputs: Any) -> Tensor:
        if torch.is_grad_enabled():
            return Operation.apply(*inputs)[0]
        return run(*inputs)[0]

    return differentiable


def workspace_of(operator: Any, inputs: tuple[Any, ...]) -> int:
    """Bytes that one of our operators holds beside its results at the most; 0 for an operator of others."""
    if operator not in _WORKSPACES:
        return 0
    return _WORKSPACES[operator](*inputs) * inputs[0].element_size()


def _tensors(n: int) -> str:
    return ", ".join(["Tensor"] * n)


def _operator(
    name: str,
    schema: str,
    function: Callable[..., tuple[Tensor, ...]],
    results: Callable[..., tuple[Tensor, ...]],
    workspace: Callable[..., int],
) -> Callable[..., tuple[Tensor, ...]]:
    """The function as an operator of the library, for any device; vmap runs it once an index."""

    def implementation(x: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            return function(x, *inputs)

    def one_by_one(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        indexed = [
            operator(*(x if dim is None else x.select(dim, i) for x, dim in zip(inputs, in_dims, strict=True)))
            for i in range(info.batch_size)
        ]
        stacked = tuple(torch.stack(parts) for parts in zip(*indexed, strict=True))
        return stacked, (0,) * len(stacked)

    qualified = f"evoformer::{name}"
    _LIBRARY.define(name + schema)
    _LIBRARY.impl(name, implementation, "CompositeExplicitAutograd")
    torch.library.register_fake(qualified, results, lib=_LIBRARY)
    torch.library.register_vmap(qualified, one_by_one, lib=_LIBRARY)
    operator = getattr(torch.ops.evoformer, name).default
    _WORKSPACES[operator] = workspace
    return operator
