"""PyTorch's fused attention as a kernel: the reference's numbers, in fused form, without a copy of the bias a row."""

import pytest
import torch
from oracles import redrawn
from torch import Tensor
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from evoformer import MSAColumnAttention, MSARowAttentionWithPairBias, MultiHeadAttention
from evoformer.execution import Execution, set_execution
from evoformer.kernels import KernelError, kernels_used

c_in, c, N_head, B, rows, N = 7, 12, 3, 2, 4, 19  # N and c are no multiples of what the kernels align to
SDPA, REFERENCE = Execution(kernel={"attention": "sdpa"}), Execution(kernel={"attention": "reference"})
FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


class Record(TorchDispatchMode):
    """What ran, and the number of elements in the largest tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.ran, self.largest = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        self.ran.append(func)
        for t in out if isinstance(out, tuple) else (out,):
            if isinstance(t, Tensor) and not func.is_view:
                self.largest = max(self.largest, t.numel())
        return out


def draw_mask(*shape: int) -> Tensor:
    """Zeros and ones; the first row has no key."""
    mask = torch.rand(*shape) > 0.4
    mask[..., 0, :] = False
    mask[..., 1:, 0] = True
    return mask


def module(c: int = c, gated: bool = True) -> MultiHeadAttention:
    return redrawn(MultiHeadAttention(c_in, c, N_head, -2, gated=gated)).float()


def results(mha: MultiHeadAttention, execution: Execution, *inputs: Tensor | None) -> list[Tensor]:
    """The output and the gradients of x and of all weights."""
    set_execution(mha, execution)
    o = mha(*inputs)
    direction = torch.linspace(-1, 1, o.numel(), dtype=o.dtype).view(o.shape)
    return [o, *torch.autograd.grad(o, [inputs[0], *mha.parameters()], direction)]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biases", [None, (), (1,), (B,)])
@pytest.mark.parametrize("c", [4, 8, 12, 32])
def test_agrees_with_the_reference_with_all_gradients_but_the_biases(
    c: int, biases: tuple[int, ...] | None, masked: bool
) -> None:
    mha, x = module(c), torch.randn(B, rows, N, c_in, requires_grad=True)
    bias = None if biases is None else 3 * torch.randn(*biases, N_head, N, N)
    mask = draw_mask(B, rows, N) if masked else None
    with Record() as record:
        ours = results(mha, SDPA, x, bias, mask)
    assert FUSED in record.ran
    for a, expected in zip(ours, results(mha, REFERENCE, x, bias, mask), strict=True):
        assert_close(a, expected, rtol=0, atol=1e-5 * max(1.0, expected.abs().max().item()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_as_near_to_float64_as_the_reference(dtype: torch.dtype) -> None:
    mha = module().to(dtype)
    inputs = torch.randn(B, rows, N, c_in, dtype=dtype), torch.randn(N_head, N, N, dtype=dtype)
    mask = draw_mask(B, rows, N)
    with torch.no_grad():
        outputs = []
        for execution in (SDPA, REFERENCE):
            set_execution(mha, execution)
            outputs.append(mha(*inputs, mask))
        exact = mha.double()(*(t.double() for t in inputs), mask)
    ours, reference = ((o - exact).abs().max().item() for o in outputs)
    assert ours <= 2 * reference + torch.finfo(dtype).eps


def test_float64_and_autocast_run_in_it_too() -> None:
    mha, x, bias, mask = module(), torch.randn(rows, N, c_in), torch.randn(N_head, N, N), draw_mask(rows, N)
    set_execution(mha, SDPA)
    with torch.no_grad():
        expected = mha(x, bias, mask)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            o = mha(x, bias, mask)
        assert o.dtype == torch.bfloat16
        assert_close(o.float(), expected, rtol=0, atol=0.05 * expected.abs().max().item())
        assert_close(mha.double()(x.double(), bias.double(), mask).float(), expected, rtol=1e-4, atol=1e-4)


def test_a_row_without_keys_gets_the_mean_of_the_values() -> None:
    mha, x = module(gated=False), torch.randn(1, 2, N, c_in, requires_grad=True)
    set_execution(mha, SDPA)
    o = mha(x, 100 * torch.randn(N_head, N, N), torch.zeros(1, 2, N))
    assert_close(o, mha.linear_o(mha.linear_v(x).mean(-2, keepdim=True).expand(1, 2, N, -1)))
    gradients = torch.autograd.grad(o.square().sum(), [mha.linear_q.weight, mha.linear_k.weight])
    assert all((gradient == 0).all() for gradient in gradients)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_masked_key_stays_hidden_however_low_the_other_logits(dtype: torch.dtype) -> None:
    mha, x, mask = module(gated=False).to(dtype), torch.randn(1, 1, N, c_in, dtype=dtype), torch.ones(N)
    bias = torch.full((N_head, N, N), -3e4, dtype=dtype)
    bias[..., 3], mask[3] = 3e4, 0
    set_execution(mha, SDPA)
    other = x.clone()
    other[..., 3, :] = 50
    with torch.no_grad():
        before, after = mha(x, bias, mask), mha(other, bias, mask)
    before[..., 3, :], after[..., 3, :] = 0, 0
    assert torch.equal(before, after)


def test_neither_the_bias_nor_the_logits_exist_once_a_row() -> None:
    many, N = 10, 64
    mha, x = module(), torch.randn(1, many, N, c_in)
    set_execution(mha, SDPA)
    with torch.no_grad(), Record() as record:
        mha(x, torch.randn(N_head, N, N), draw_mask(1, many, N))
    assert FUSED in record.ran
    assert record.largest < many * N_head * N * N


def test_serves_training_without_a_bias_and_refuses_it_with_one() -> None:
    m, z = torch.randn(rows, N, c_in), torch.randn(N, N, 5)
    column, row = MSAColumnAttention(c_in, c, N_head), MSARowAttentionWithPairBias(c_in, 5, c, N_head)
    set_execution(column, SDPA)
    set_execution(row, SDPA)
    with kernels_used() as used:
        column(m).sum().backward()
        with torch.no_grad():
            row(m, z)
    assert used["attention", "sdpa"] == 2
    with pytest.raises(KernelError, match="the bias needs a gradient"):
        row(m, z)
    with pytest.raises(KernelError, match="the bias needs a gradient"):
        torch.func.grad(lambda bias: row.mha(m, bias).sum())(torch.randn(N_head, N, N))


def test_refuses_forward_mode_and_empty_inputs() -> None:
    mha, x = module(), torch.randn(rows, N, c_in)
    set_execution(mha, SDPA)
    with pytest.raises(KernelError, match="no forward-mode derivative"):
        torch.func.jvp(mha, (x,), (x,))
    with pytest.raises(KernelError, match="x is empty"):
        mha(x[:0])


@pytest.mark.usefixtures("without_shape_checks")
def test_goes_through_compile() -> None:
    mha, x, bias, mask = module(), torch.randn(rows, N, c_in), torch.randn(N_head, N, N), draw_mask(rows, N)
    set_execution(mha, SDPA)
    with torch.no_grad():
        compiled = torch.compile(mha, fullgraph=True, backend="aot_eager")
        assert_close(compiled(x, bias, mask), mha(x, bias, mask))
    torch._dynamo.reset()
