"""On a GPU every kernel of every op is as near to float64 on a CPU as the plain kernel is, with all gradients.

`scripts/gpu_check.sh` runs this and the benchmark. Lengths are no multiples of any block.
"""

from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass

import pytest
import torch
from oracles import redrawn
from torch import Tensor, nn

from evoformer import (
    EvoformerBlock,
    MSAColumnAttention,
    MSAColumnGlobalAttention,
    MSARowAttentionWithPairBias,
    MSATransition,
    MultiHeadAttention,
    OuterProductMean,
    TriangleAttention,
    TriangleMultiplication,
)
from evoformer.execution import Execution, set_execution
from evoformer.kernels import KERNELS, KernelError

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

N_seq, N_res, c_m, c_z, c, N_head = 21, 70, 48, 64, 32, 4
FLOOR = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}  # of the norm


@dataclass(frozen=True)
class Case:
    """A layer and what it takes, any of "m" and "z"; it has a mask for the first, or for what `mask` says."""

    op: str
    build: Callable[[], nn.Module]
    takes: str
    mask: str | None


CASES = {
    "row attention": Case("attention", lambda: MSARowAttentionWithPairBias(c_m, c_z, c, N_head), "mz", "m"),
    "column attention": Case("attention", lambda: MSAColumnAttention(c_m, c, N_head), "m", "m"),
    "starting node": Case("attention", lambda: TriangleAttention(c_z, "starting_node", c, N_head), "z", "z"),
    "ending node": Case("attention", lambda: TriangleAttention(c_z, "ending_node", c, N_head), "z", "z"),
    "pair bias": Case("pair_bias", lambda: MSARowAttentionWithPairBias(c_m, c_z, c, N_head), "mz", "m"),
    "global column": Case("global_attention", lambda: MSAColumnGlobalAttention(c_m, 8, N_head), "m", "m"),
    "outer product mean": Case("outer_product_mean", lambda: OuterProductMean(c_m, c_z, c), "m", "m"),
    "outgoing": Case("triangle_multiplication", lambda: TriangleMultiplication(c_z, "outgoing", c_z), "z", "z"),
    "incoming": Case("triangle_multiplication", lambda: TriangleMultiplication(c_z, "incoming", c_z), "z", "z"),
    "transition": Case("transition", lambda: MSATransition(c_m, 4), "m", None),
}
RUNS = [(name, kernel.name) for name, case in CASES.items() for kernel in KERNELS[case.op]]


@pytest.fixture(autouse=True)
def _exact_products() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def draw(case: Case, dtype: torch.dtype) -> tuple[list[Tensor], Tensor | None]:
    """Inputs and a mask with zeros, ones, a row and a column of zeros; on the CPU."""
    shapes = {"m": (2, N_seq, N_res, c_m), "z": (2, N_res, N_res, c_z)}
    inputs = [torch.randn(shapes[name], dtype=torch.float64).to(dtype) for name in case.takes]
    if case.mask is None:
        return inputs, None
    mask = torch.rand(shapes[case.mask][:-1]) > 0.3
    mask[..., -1, :] = False
    mask[..., :, 5] = False
    return inputs, mask


def results(
    module: nn.Module, inputs: list[Tensor], mask: Tensor | None, execution: Execution, gradients: bool = True
) -> list[Tensor]:
    """The output, and the gradients of inputs and weights; on the CPU, in float64."""
    set_execution(module, execution)
    inputs = [x.detach().requires_grad_(gradients) for x in inputs]
    with nullcontext() if gradients else torch.no_grad():
        out = module(*inputs) if mask is None else module(*inputs, mask)
    found = [out]
    if gradients:
        found += torch.autograd.grad(out, [*inputs, *module.parameters()], direction_of(out))
    return [t.detach().double().cpu() for t in found]


def direction_of(out: Tensor) -> Tensor:
    """A gradient of the output, random, so that no sum cancels; the same on every device.

    Small: for pairs of wholly masked columns the outer product mean divides by 0.001, which float16 must hold.
    """
    return (torch.randn(out.shape, generator=torch.Generator().manual_seed(1)) / 16).to(out)


def on_gpu(
    module: nn.Module, inputs: list[Tensor], mask: Tensor | None, execution: Execution, gradients: bool = True
) -> list[Tensor]:
    inputs = [x.to(DEVICE) for x in inputs]
    mask = None if mask is None else mask.to(DEVICE)
    return results(deepcopy(module).to(DEVICE), inputs, mask, execution, gradients)


def assert_as_near(ours: list[Tensor], plain: list[Tensor], exact: list[Tensor], dtype: torch.dtype) -> None:
    """The norm of our error is at most twice that of the plain kernel's, and what rounding may do on top."""
    for i, (a, b, wanted) in enumerate(zip(ours, plain, exact, strict=True)):
        assert a.isfinite().all(), f"tensor {i}"
        floor = FLOOR[dtype] * max(wanted.norm().item(), 0.1 * wanted.numel() ** 0.5)
        error, allowed = (a - wanted).norm().item(), 2 * (b - wanted).norm().item() + floor
        assert error <= allowed, f"tensor {i}: {error:.2e}, allowed {allowed:.2e}, norm {wanted.norm():.2e}"


@pytest.mark.parametrize("dtype", FLOOR, ids=str)
@pytest.mark.parametrize(("name", "kernel"), RUNS, ids=[f"{name}, {kernel}" for name, kernel in RUNS])
def test_is_as_near_to_float64_as_the_plain_kernel(name: str, kernel: str, dtype: torch.dtype) -> None:
    case = CASES[name]
    module = redrawn(case.build(), std=0.2).to(dtype)
    inputs, mask = draw(case, dtype)
    chosen, plain, gradients = Execution(kernel={case.op: kernel}), Execution(kernel="reference"), True
    try:
        ours = on_gpu(module, inputs, mask, chosen)
    except KernelError as refusal:
        gradients = False  # some serve without gradients only
        try:
            ours = on_gpu(module, inputs, mask, chosen, gradients)
        except KernelError:
            pytest.skip(str(refusal))
    exact = results(deepcopy(module).double(), [x.double() for x in inputs], mask, plain, gradients)
    assert_as_near(ours, on_gpu(module, inputs, mask, plain, gradients), exact, dtype)


@pytest.mark.parametrize("width", [8, 16, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_triton_knows_every_width(width: int, dtype: torch.dtype) -> None:
    mha = redrawn(MultiHeadAttention(c_m, width, N_head, -2, gated=width != 16), std=0.2).to(dtype)
    x, bias = (torch.randn(shape).to(dtype) for shape in [(2, 3, 130, c_m), (2, N_head, 130, 130)])
    mask = torch.rand(2, 3, 130) > 0.3
    mask[0, 1] = False
    plain = Execution(kernel="reference")
    try:
        ours = on_gpu(mha, [x, bias], mask, Execution(kernel={"attention": "triton"}))
    except KernelError as refusal:
        pytest.skip(str(refusal))
    exact = results(deepcopy(mha).double(), [x.double(), bias.double()], mask, plain)
    assert_as_near(ours, on_gpu(mha, [x, bias], mask, plain), exact, dtype)


def test_the_triton_kernel_gives_the_same_gradients_on_every_run_and_stores_no_logits() -> None:
    rows, N = 128, 384
    mha = redrawn(MultiHeadAttention(c_m, c, N_head, -2, gated=True), std=0.2).to(DEVICE, torch.bfloat16)
    x = torch.randn(1, rows, N, c_m, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    bias = torch.randn(1, N_head, N, N, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    set_execution(mha, Execution(kernel={"attention": "triton"}))

    def gradients() -> tuple[Tensor, ...]:
        return torch.autograd.grad(mha(x, bias), [x, bias], torch.ones_like(x))

    try:
        first = gradients()
    except KernelError as refusal:
        pytest.skip(str(refusal))
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    second = gradients()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.cuda.max_memory_allocated() - before < rows * N_head * N * N * 2


@pytest.mark.parametrize("recompute", ["none", "layer", "block"])
def test_a_block_left_to_itself_agrees_with_the_plain_one(recompute: str) -> None:
    block = redrawn(EvoformerBlock(c_m=c_m, c_z=c_z), std=0.1).float()
    m, z = torch.randn(1, N_seq, N_res, c_m), torch.randn(1, N_res, N_res, c_z)
    msa_mask, pair_mask = torch.ones(1, N_seq, N_res), torch.ones(1, N_res, N_res)
    msa_mask[..., -7:], pair_mask[..., -7:], pair_mask[..., -7:, :] = 0, 0, 0

    def gradients(block: nn.Module, execution: Execution, device: str, dtype: torch.dtype) -> list[Tensor]:
        block = deepcopy(block).to(device, dtype)
        set_execution(block, execution)
        inputs = [x.to(device, dtype).requires_grad_() for x in (m, z)]
        outs = block(*inputs, msa_mask.to(device), pair_mask.to(device))
        leaves = [*inputs, *block.parameters()]
        found = torch.autograd.grad(outs, leaves, [direction_of(out) for out in outs])
        return [t.detach().double().cpu() for t in (*outs, *found)]

    ours = gradients(block, Execution(recompute=recompute), DEVICE, torch.float32)
    plain = gradients(block, Execution(kernel="reference"), DEVICE, torch.float32)
    exact = gradients(block, Execution(kernel="reference"), "cpu", torch.float64)
    assert_as_near(ours, plain, exact, torch.float32)
