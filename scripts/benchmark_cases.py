"""What the benchmark runs: every op and the blocks at AlphaFold's widths, and the matmul FLOPs that each needs.

FLOPs are of a forward pass, two for a multiplication and an addition; a backward pass needs twice as many. Products of
matrices are counted, norms, softmax and masks are not; the query of global attention is projected once a column.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from evoformer import (
    EvoformerBlock,
    EvoformerStack,
    ExtraMSABlock,
    MSAColumnAttention,
    MSAColumnGlobalAttention,
    MSARowAttentionWithPairBias,
    MSATransition,
    OuterProductMean,
    PairTransition,
    TriangleAttention,
    TriangleMultiplication,
)
from evoformer.execution import Execution, Op, Recompute, set_execution
from evoformer.kernels import KERNELS, KernelError, kernels_used

WIDTHS = {"m": 256, "e": 64, "z": 128, "s": 384}
N_BLOCK = 48

Direction = Literal["forward", "forward+backward"]


@dataclass(frozen=True)
class Case:
    """A module, and what goes in and out of it.

    Attributes:
        name: as the block calls it.
        make: builds the module.
        inputs: one letter a tensor: m MSA, e extra MSA, z pair.
        outputs: the same, and s for the single representation.
        flops: from N_seq and N_res to the matmul FLOPs of a forward pass.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: str
    outputs: str
    flops: Callable[[int, int], int]

    @property
    def is_extra(self) -> bool:
        """Whether it works on the extra MSA."""
        return "e" in self.inputs

    @property
    def is_block(self) -> bool:
        """Whether it is a block, or several."""
        return len(self.outputs) > 1


def linear(N: int, c_in: int, c_out: int) -> int:
    """A linear layer of N positions."""
    return 2 * N * c_in * c_out


def attention(rows: int, N: int, c_in: int, c: int, N_head: int) -> int:
    """Gated attention: q, k, v, gate and output; the logits and the sums of values."""
    return linear(rows * N, c_in, 5 * c * N_head) + 4 * rows * N * N * c * N_head


def row_attention(N_seq: int, N_res: int, c_in: int, c: int) -> int:
    """Row attention and its pair bias, 8 heads."""
    return attention(N_seq, N_res, c_in, c, N_head=8) + linear(N_res**2, WIDTHS["z"], 8)


def global_attention(N_seq: int, N_res: int, c_in: int, c: int) -> int:
    """Global column attention, 8 heads, one key and value head, one query a column."""
    projections = linear(N_seq * N_res, c_in, 2 * c + 2 * 8 * c) + linear(N_res, c_in, 8 * c)
    return projections + 4 * N_res * N_seq * 8 * c


def outer_product_mean(N_seq: int, N_res: int, c_in: int) -> int:
    """Outer product mean, 32 channels."""
    return linear(N_seq * N_res, c_in, 64) + 2 * N_seq * N_res**2 * 32**2 + linear(N_res**2, 32**2, WIDTHS["z"])


def transition(N: int, c: int) -> int:
    """A transition of N positions, four times as wide inside."""
    return linear(N, c, 4 * c) + linear(N, 4 * c, c)


def triangle_multiplication(N_res: int) -> int:
    """Triangle multiplication, 128 channels: a, b, their gates, the output and its gate."""
    return linear(N_res**2, WIDTHS["z"], 6 * 128) + 2 * N_res**3 * 128


def triangle_attention(N_res: int) -> int:
    """Triangle attention, 4 heads of 32 channels, and its bias."""
    return attention(N_res, N_res, WIDTHS["z"], 32, N_head=4) + linear(N_res**2, WIDTHS["z"], 4)


def pair_half(N_res: int) -> int:
    """The pair half of a block."""
    triangles = 2 * triangle_multiplication(N_res) + 2 * triangle_attention(N_res)
    return triangles + transition(N_res**2, WIDTHS["z"])


def block(N_seq: int, N_res: int) -> int:
    """An Evoformer block."""
    row, column = row_attention(N_seq, N_res, 256, 32), attention(N_res, N_seq, 256, 32, N_head=8)
    msa = row + column + transition(N_seq * N_res, 256)
    return msa + outer_product_mean(N_seq, N_res, 256) + pair_half(N_res)


def extra_block(N_seq: int, N_res: int) -> int:
    """An extra-MSA block."""
    msa = row_attention(N_seq, N_res, 64, 8) + global_attention(N_seq, N_res, 64, 8) + transition(N_seq * N_res, 64)
    return msa + outer_product_mean(N_seq, N_res, 64) + pair_half(N_res)


def stack(N_seq: int, N_res: int) -> int:
    """48 blocks and the single representation."""
    return N_BLOCK * block(N_seq, N_res) + linear(N_res, WIDTHS["m"], WIDTHS["s"])


def _cases() -> list[Case]:
    def triangle(name: str, make: Callable[[], nn.Module], flops: Callable[[int], int]) -> Case:
        return Case(name, make, "z", "z", lambda N_seq, N_res: flops(N_res))

    return [
        Case(
            "msa_att_row",
            lambda: MSARowAttentionWithPairBias(256, 128, c=32, N_head=8),
            "mz",
            "m",
            lambda N_seq, N_res: row_attention(N_seq, N_res, 256, 32),
        ),
        Case(
            "msa_att_col",
            lambda: MSAColumnAttention(256, c=32, N_head=8),
            "m",
            "m",
            lambda N_seq, N_res: attention(N_res, N_seq, 256, 32, N_head=8),
        ),
        Case(
            "msa_transition", lambda: MSATransition(256), "m", "m", lambda N_seq, N_res: transition(N_seq * N_res, 256)
        ),
        Case(
            "outer_product_mean",
            lambda: OuterProductMean(256, 128, c=32),
            "m",
            "z",
            lambda N_seq, N_res: outer_product_mean(N_seq, N_res, 256),
        ),
        triangle("tri_mul_out", lambda: TriangleMultiplication(128, "outgoing", c=128), triangle_multiplication),
        triangle("tri_mul_in", lambda: TriangleMultiplication(128, "incoming", c=128), triangle_multiplication),
        triangle("tri_att_start", lambda: TriangleAttention(128, "starting_node", c=32, N_head=4), triangle_attention),
        triangle("tri_att_end", lambda: TriangleAttention(128, "ending_node", c=32, N_head=4), triangle_attention),
        triangle("pair_transition", lambda: PairTransition(128), lambda N_res: transition(N_res**2, 128)),
        Case("block", lambda: EvoformerBlock(256, 128), "mz", "mz", block),
        Case(
            "extra_msa_att_row",
            lambda: MSARowAttentionWithPairBias(64, 128, c=8, N_head=8),
            "ez",
            "e",
            lambda N_seq, N_res: row_attention(N_seq, N_res, 64, 8),
        ),
        Case(
            "extra_msa_att_col",
            lambda: MSAColumnGlobalAttention(64, c=8, N_head=8),
            "e",
            "e",
            lambda N_seq, N_res: global_attention(N_seq, N_res, 64, 8),
        ),
        Case("extra_block", lambda: ExtraMSABlock(64, 128), "ez", "ez", extra_block),
        Case("stack", lambda: EvoformerStack(256, 128, N_BLOCK), "mz", "mzs", stack),
    ]


CASES = {case.name: case for case in _cases()}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One way of running a case at one size."""

    op: str
    N_seq: int | None  # None where there is no MSA
    N_res: int
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 1
    kernel: str = "reference"
    recompute: Recompute = "none"
    in_place: bool = False
    direction: Direction = "forward"

    @property
    def backward(self) -> bool:
        """Whether a backward pass follows the forward pass."""
        return self.direction == "forward+backward"

    def flops(self) -> int:
        """The matmul FLOPs of a pass."""
        return CASES[self.op].flops(self.N_seq or 1, self.N_res) * (3 if self.backward else 1)

    def execution(self) -> Execution:
        """How it runs: ops that do not list the kernel run with "auto".

        Raises:
            KernelError: no op of the case lists the kernel.
        """
        if self.kernel == "auto":
            return Execution(recompute=self.recompute, in_place=self.in_place)
        listed = {op for op in get_args(Op) if self.kernel in (kernel.name for kernel in KERNELS[op])}
        ops = ops_of(self.op)
        if not listed & ops:
            raise KernelError(f"not listed for {', '.join(sorted(ops))}")
        return Execution(kernel=dict.fromkeys(listed, self.kernel), recompute=self.recompute, in_place=self.in_place)


@cache
def ops_of(name: str) -> set[Op]:
    """The ops that a case is made of."""
    if name == "stack":
        return ops_of("block")
    tiny = Workload(Job(op=name, N_seq=1, N_res=1))
    with kernels_used() as used:
        tiny.run()
    return {op for op, _ in used}


class Workload:
    """The module, the inputs and the gradient of the output of a job, all random; kernels may change later.

    With a backward pass all inputs and weights get gradients. Dropout is off.
    """

    def __init__(self, job: Job) -> None:
        case = CASES[job.op]
        self.backward = job.backward
        dtype, device = getattr(torch, job.dtype), torch.device(job.device)
        N_seq, N_res = job.N_seq or 1, job.N_res
        shapes = {
            "m": (N_seq, N_res, WIDTHS["m"]),
            "e": (N_seq, N_res, WIDTHS["e"]),
            "z": (N_res, N_res, WIDTHS["z"]),
            "s": (N_res, WIDTHS["s"]),
        }

        def random(letter: str) -> Tensor:
            return torch.randn(shapes[letter], dtype=dtype, device=device)

        torch.manual_seed(0)
        self.module = _random_weights(case.make()).to(device, dtype).eval()
        self.inputs = [random(letter).requires_grad_(job.backward) for letter in case.inputs]
        self.gradients = [random(letter) for letter in case.outputs] if job.backward else []
        self.leaves = [*self.inputs, *self.module.parameters()]

    def use(self, execution: Execution) -> None:
        """Run so from now on."""
        set_execution(self.module, execution)

    def run(self) -> None:
        """One pass, forward or forward and backward."""
        if not self.backward:
            with torch.no_grad():
                self.module(*self.inputs)
            return
        for leaf in self.leaves:
            leaf.grad = None
        outputs = self.module(*self.inputs)
        torch.autograd.backward(outputs, self.gradients)


def _random_weights(module: nn.Module) -> nn.Module:
    """The module with all weights drawn anew: a new layer's last projection is zero."""
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.ndim > 1:
                weight.normal_(std=weight.shape[-1] ** -0.5)
            else:
                weight.normal_(mean=float("norm" in name and name.endswith("weight")), std=0.1)
    return module
