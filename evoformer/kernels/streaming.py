"""What the streamed kernels share: the size of a chunk, its memory, layers, sums of products, and when to refuse."""

import math
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from evoformer.execution import rows_in_slices
from evoformer.kernels.kernel import forward_mode
from evoformer.kernels.parts import Norm

CHUNK_TOKENS = 1024  # a chunk's intermediates, some 4 MiB in float32, stay in the cache and below malloc's fresh pages
SMALL = 2**21  # elements of an intermediate: below, plain autograd is as fast
LAYER_NORM_EPS = 1e-5
ABSORBING = -1e30  # added to a logit it absorbs it, so all masked keys are alike, in float32 and in float64


class ChunkedNorm:
    """LayerNorm of one chunk after another, or nothing where the weight is None; gradients of the weights add up."""

    def __init__(self, weight: Tensor | None, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        if weight is not None and bias is not None:
            self.weight_grad, self.bias_grad = accumulator(weight), accumulator(bias)
            self.scratch = Scratch(weight)

    def __call__(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """The normalised chunk in a dtype, as [tokens, c]; remembers what `backward` needs."""
        if self.weight is None:
            return x.to(dtype).reshape(-1, x.shape[-1])
        is_ready = x.is_contiguous() and x.dtype == self.weight.dtype
        self.x = (x if is_ready else self.scratch.copy("x", x)).view(-1, x.shape[-1])
        out, self.mean, self.rstd = torch.native_layer_norm(
            self.x, x.shape[-1:], self.weight, self.bias, LAYER_NORM_EPS
        )
        return out.to(dtype)

    def backward(self, grad: Tensor) -> Tensor:
        """The gradient [tokens, c] of the chunk of the last call, from that of its result."""
        if self.weight is None:
            return grad
        x_grad, weight_grad, bias_grad = torch.ops.aten.native_layer_norm_backward(
            grad.to(self.x.dtype), self.x, self.x.shape[-1:], self.mean, self.rstd, self.weight, self.bias, [True] * 3
        )
        self.weight_grad += weight_grad
        self.bias_grad += bias_grad
        return x_grad

    def gradients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Those of weight and bias; empty ones, on x's device, where there are none."""
        if self.weight is None or self.bias is None:
            return x.new_empty(0), x.new_empty(0)
        return self.weight_grad.to(self.weight.dtype), self.bias_grad.to(self.bias.dtype)


class ChunkedLinear:
    """A linear layer of one chunk after another, whose gradients add up in float32 at least.

    Args:
        weight: [c_out, c_in].
        bias: of the last channels: of all, of some or of none.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.first_biased = len(weight) - len(bias)
        self.weight, self.bias = weight, F.pad(bias, (self.first_biased, 0))

    @cached_property
    def weight_grad(self) -> Tensor:
        """Made when the first backward pass adds to it."""
        return accumulator(self.weight)

    @cached_property
    def bias_grad(self) -> Tensor:
        """As `weight_grad`."""
        return accumulator(self.bias[self.first_biased :])

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """x W^T + b of x [tokens, c_in], into `out` [*, c_out] where it is given."""
        if out is not None and not out.is_contiguous():
            return out.copy_(self(x).view(out.shape))
        return torch.addmm(self.bias, x, self.weight.t(), out=None if out is None else out.view(len(x), -1))

    def add_gradients(self, grad: Tensor, x: Tensor) -> None:
        """Those of weight and bias, from that of the result [tokens, c_out] and x [tokens, c_in]."""
        add_product(self.weight_grad, grad.t(), x)
        self.bias_grad += grad[:, self.first_biased :].sum(0)

    def backward(self, grad: Tensor, out: Tensor | None = None) -> Tensor:
        """The gradient of x [tokens, c_in], from that of the result [tokens, c_out]."""
        return torch.mm(grad, self.weight, out=out)

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Those of weight and bias."""
        return self.weight_grad.to(self.weight.dtype), self.bias_grad.to(self.bias.dtype)


class Scratch:
    """Memory that one chunk after another writes over: it stays in the cache, and none of it is asked for twice."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self.buffers: dict[tuple[str, torch.dtype], Tensor] = {}

    def __call__(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor of any content, in the memory of the last one of this name, which must not be read any more."""
        key = name, dtype or self.like.dtype
        size = math.prod(shape)
        if key not in self.buffers or len(self.buffers[key]) < size:
            self.buffers[key] = self.like.new_empty(size, dtype=key[1])
        return self.buffers[key][:size].view(shape)

    def copy(self, name: str, x: Tensor) -> Tensor:
        """A contiguous copy of x under a name."""
        return self(name, *x.shape).copy_(x)


def accumulator(x: Tensor) -> Tensor:
    """Zeros like x, in float32 at least."""
    return torch.zeros_like(x, dtype=wide(x.dtype))


def wide(dtype: torch.dtype) -> torch.dtype:
    """float32, or the dtype itself where it is wider: for sums, softmax and logits."""
    return torch.promote_types(dtype, torch.float32)


def chunks(x: Tensor, size: int) -> Iterator[tuple[int, slice]]:
    """Batch index and rows of each chunk of x [B, rows, *], which has `size` rows at most."""
    for b in range(x.shape[0]):
        for part in rows_in_slices(x.shape[1], size):
            yield b, part


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a b to a matrix, or to a batch of them, which may be of a wider dtype."""
    if total.dtype == a.dtype:
        add = total.addmm_ if total.ndim == 2 else total.baddbmm_
        add(a, b)
    else:
        total += a @ b


def gate_gradient(gated_grad: Tensor, gated: Tensor, g: Tensor, out: Tensor) -> None:
    """Write the gradient of what the sigmoid g takes, from gated = x g and its gradient; x itself is not needed."""
    torch.mul(gated_grad, gated, out=out).addcmul_(out, g, value=-1)


def is_recorded(*inputs: Tensor | nn.Module | None) -> bool:
    """Whether a gradient of any of these may be asked for."""
    if not torch.is_grad_enabled():
        return False
    tensors = (t for x in inputs for t in (x.parameters() if isinstance(x, nn.Module) else [x]))
    return any(t is not None and t.requires_grad for t in tensors)


def norm_parameters(norm: Norm) -> tuple[Tensor | None, Tensor | None]:
    """Weight and bias of a LayerNorm; None for `nn.Identity`."""
    return (None, None) if isinstance(norm, nn.Identity) else (norm.weight, norm.bias)


def bias_of(linear: nn.Linear) -> Tensor:
    """Its bias, zeros where it has none."""
    return linear.weight.new_zeros(len(linear.weight)) if linear.bias is None else linear.bias


def is_small(elements: int) -> bool:
    """Whether an intermediate of so many elements is better kept whole, by plain autograd.

    A size that is not known while a graph is exported is not small.
    """
    return isinstance(elements, int) and elements < SMALL


def refusal(x: Tensor, *parts: nn.Module | None) -> str | None:
    """The reason to refuse an input, modules that are more than their parameters, or a forward-mode derivative."""
    for part in parts:
        if part is None:
            continue
        name, forward = type(part).__name__, type(part).forward
        if forward not in (nn.Linear.forward, nn.LayerNorm.forward, nn.Identity.forward):
            return f"it reads the parameters of linear layers and LayerNorms, and a part is {name}"
        if "forward" in part.__dict__:
            return f"it reads the parameters only, and a {name} has a forward of its own"
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks:
            return f"it reads the parameters only, and a {name} has hooks"
        if isinstance(part, nn.LayerNorm) and (part.eps != LAYER_NORM_EPS or part.bias is None):
            return f"it knows LayerNorms with a bias and an eps of {LAYER_NORM_EPS}, and a part is {part}"
        dtypes = {p.dtype for p in part.parameters()} - {x.dtype}
        if dtypes and not torch.is_autocast_enabled(x.device.type):
            return f"x is {x.dtype}, the parameters of a {name} are {dtypes.pop()}"
    return forward_mode()


def rows_of(slice_size: int | None, tokens: int, factor: int = 1) -> int:
    """How many rows of so many tokens are a chunk: as asked for, or what fits the cache, one at least."""
    return slice_size or max(1, factor * CHUNK_TOKENS // tokens)
