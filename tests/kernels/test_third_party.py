"""Kernels of other packages: what they are called with, the reference's numbers, and why they refuse.

Each package is a fake that does in plain PyTorch what its documentation says, and fails on what it does not take.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch
from oracles import redrawn
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.testing import assert_close

from evoformer import MultiHeadAttention, TriangleMultiplication
from evoformer.execution import Execution, set_execution
from evoformer.kernels import KernelError, cuequivariance, deepspeed, reference, trifast
from evoformer.kernels.kernel import Kernel
from evoformer.kernels.parts import AttentionParts, TriangleParts

B, N, c_in, c, N_head = 2, 5, 7, 4, 3
KERNEL = {kernel.name: kernel for kernel in (cuequivariance.ATTENTION, trifast.KERNEL, deepspeed.KERNEL)}


def softmax_over_keys(logits: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(logits, -1) @ v


def fake_cuequivariance(q, k, v, bias, mask=None, scale=None, return_aux=False):
    """q, k, v [B, rows, N_head, N, c]; True in the mask is a key that is seen; a row without any is garbage."""
    n_batch, n_rows, n_heads, n, _ = q.shape
    assert k.shape == v.shape == q.shape
    assert all(t.is_contiguous() for t in (q, k, v, bias))
    assert bias.shape == (n_batch, 1, n_heads, n, n)
    logits = scale * q @ k.mT + bias
    if mask is not None:
        assert mask.shape == (n_batch, n_rows, 1, 1, n)
        assert mask.dtype == torch.bool
        logits = logits.masked_fill(~mask, -1e9).masked_fill(~mask.any(-1, keepdim=True), torch.nan)
    return softmax_over_keys(logits, v)


def fake_trifast(q, k, v, bias, mask):
    """q, k, v [B, N_head, N, N, c]; True in the mask is a key that is hidden."""
    n_batch, n_heads, n_rows, n, width = q.shape
    assert k.shape == v.shape == q.shape
    assert n_rows == n
    assert bias.shape == (n_batch, n_heads, n, n)
    assert bias.dtype == q.dtype
    assert mask.shape == (n_batch, n, n)
    assert mask.dtype == torch.bool
    logits = width**-0.5 * q @ k.mT + bias[:, :, None]
    return softmax_over_keys(logits.masked_fill(mask[:, None, :, None], torch.finfo(q.dtype).min), v)


def fake_deepspeed(q, k, v, biases):
    """q, k, v [B, rows, N, N_head, c]; two biases that add to the logits."""
    n_batch, n_rows, n, n_heads, width = q.shape
    assert k.shape == v.shape == q.shape
    shapes = [(n_batch, n_rows, 1, 1, n), (n_batch, 1, n_heads, n, n)]
    logits = width**-0.5 * q.transpose(2, 3) @ k.transpose(2, 3).mT
    assert len(biases) == 2
    for bias, shape in zip(biases, shapes, strict=True):
        if bias is not None:
            assert bias.shape == shape
            assert bias.dtype == q.dtype
            logits = logits + bias
    return softmax_over_keys(logits, v.transpose(2, 3)).transpose(2, 3)


def fake_triangle_multiplication(
    x, direction="outgoing", mask=None, norm_in_weight=None, norm_in_bias=None, p_in_weight=None, p_in_bias=None,
    g_in_weight=None, g_in_bias=None, norm_out_weight=None, norm_out_bias=None, p_out_weight=None, p_out_bias=None,
    g_out_weight=None, g_out_bias=None, eps=1e-5, precision=None,
):  # fmt: skip
    x = F.layer_norm(x, x.shape[-1:], norm_in_weight, norm_in_bias, eps)
    ab = F.linear(x, p_in_weight, p_in_bias) * F.linear(x, g_in_weight, g_in_bias).sigmoid()
    if mask is not None:
        assert mask.shape == x.shape[:-1]
        ab = ab * mask[..., None]
    a, b = ab.chunk(2, -1)
    product = torch.einsum("bikc,bjkc->bijc" if direction == "outgoing" else "bkic,bkjc->bijc", a, b)
    out = F.linear(F.layer_norm(product, x.shape[-1:], norm_out_weight, norm_out_bias, eps), p_out_weight, p_out_bias)
    return out * F.linear(x, g_out_weight, g_out_bias).sigmoid()


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = {
        "cuequivariance_torch": {
            "triangle_attention": fake_cuequivariance,
            "triangle_multiplicative_update": fake_triangle_multiplication,
        },
        "trifast": {"triangle_attention": fake_trifast},
        "deepspeed": {},
        "deepspeed.ops": {},
        "deepspeed.ops.deepspeed4science": {"DS4Sci_EvoformerAttention": fake_deepspeed},
    }
    for name, contents in functions.items():
        module = ModuleType(name)
        module.__spec__, module.__path__ = ModuleSpec(name, None), []
        for function, fake in contents.items():
            setattr(module, function, fake)
        monkeypatch.setitem(sys.modules, name, module)


def attention_parts(width: int = c, gated: bool = True) -> AttentionParts:
    mha = redrawn(MultiHeadAttention(c_in, width, N_head, -2, gated=gated))
    return mha._parts(redrawn(nn.LayerNorm(c_in)))


def parameters(parts: AttentionParts | TriangleParts) -> list[nn.Parameter]:
    return [p for part in parts if isinstance(part, nn.Module) for p in part.parameters()]


def draw_mask(*shape: int) -> Tensor:
    """Zeros and ones; the first row has no key."""
    mask = torch.rand(*shape) > 0.4
    mask[..., 0, :] = False
    return mask.long()


@pytest.mark.parametrize("execution", [Execution(), Execution(slice_size=2, recompute="layer")], ids=["", "slices"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biases", [None, 1, B])
@pytest.mark.parametrize(("kernel", "rows"), [("cuequivariance", 4), ("trifast", N), ("deepspeed", 4)])
def test_attention_agrees_with_the_reference_with_all_gradients(
    kernel: str, rows: int, biases: int | None, masked: bool, execution: Execution
) -> None:
    parts, x = attention_parts(), torch.randn(B, rows, N, c_in, dtype=torch.float64, requires_grad=True)
    bias = None if biases is None else torch.randn(biases, N_head, N, N, dtype=torch.float64, requires_grad=True)
    mask = draw_mask(B, rows, N) if masked else None
    inputs = [x, *parameters(parts), *([] if bias is None else [bias])]
    ours = KERNEL[kernel].run(x, parts, bias, mask, execution=execution)
    expected = reference.gated_attention(x, parts, bias, mask)
    assert_close(ours, expected)
    direction = torch.randn_like(expected)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, direction), torch.autograd.grad(expected, inputs, direction), strict=True
    ):
        assert_close(a, b)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("mult_type", ["outgoing", "incoming"])
def test_triangle_multiplication_agrees_with_the_reference_with_all_gradients(mult_type: str, masked: bool) -> None:
    layer = redrawn(TriangleMultiplication(c_in, mult_type, c_in))
    z = torch.randn(B, N, N, c_in, dtype=torch.float64, requires_grad=True)
    mask = draw_mask(B, N, N) if masked else None
    parts = parts_of(layer, z)
    inputs = [z, *layer.parameters()]
    ours = cuequivariance.triangle_multiplication(z, parts, mask, execution=Execution(recompute="layer"))
    expected = layer(z, mask)
    assert_close(ours, expected)
    direction = torch.randn_like(expected)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, direction), torch.autograd.grad(expected, inputs, direction), strict=True
    ):
        assert_close(a, b)


def parts_of(layer: TriangleMultiplication, z: Tensor) -> TriangleParts:
    """What the layer hands to the op."""
    seen: list[TriangleParts] = []

    def op(z: Tensor, parts: TriangleParts, mask: Tensor | None, execution: Execution) -> Tensor:
        seen.append(parts)
        return z

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evoformer.ops.triangle_multiplication", op)
        layer(z)
    return seen[0]


def on_cuda(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """A tensor that says it is on a GPU, and holds nothing."""
    with FakeTensorMode():
        return torch.empty(shape, dtype=dtype, device="cuda")


def reason(kernel: Kernel, x: Tensor, width: int = 32) -> str | None:
    return kernel.refuses(x, attention_parts(width), None, None)


@pytest.mark.parametrize("name", KERNEL)
def test_refuses_without_the_package_or_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mha = redrawn(MultiHeadAttention(c_in, c, N_head, -2)).float()
    set_execution(mha, Execution(kernel={"attention": name}))
    with pytest.raises(KernelError, match=f"{name}.*runs on CUDA, and x is on cpu"):
        mha(torch.randn(N, N, c_in))
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(KernelError, match=rf"the package {name}(_torch)? is not installed"):
        mha(torch.randn(N, N, c_in))


def test_cuequivariance_refuses_widths_and_exact_gradients() -> None:
    kernel = KERNEL["cuequivariance"]
    assert reason(kernel, on_cuda(B, 3, N, c_in)) is None
    assert "head width is 12, and it knows multiples of 8 up to 128" in reason(kernel, on_cuda(B, 3, N, c_in), 12)
    single = on_cuda(B, 3, N, c_in, dtype=torch.float32)
    assert "head width is 64, and it knows multiples of 4 up to 32" in reason(kernel, single, 64)
    assert "allow_tf32" in reason(kernel, single)
    with torch.no_grad():
        assert reason(kernel, single) is None
    assert "torch.float64" in reason(kernel, on_cuda(B, 3, N, c_in, dtype=torch.float64))


def test_trifast_refuses_what_is_not_square() -> None:
    kernel = KERNEL["trifast"]
    assert reason(kernel, on_cuda(B, N, N, c_in)) is None
    assert "x has 3 rows of 5" in reason(kernel, on_cuda(B, 3, N, c_in))
    assert "head width is 8, and it knows 16, 32, 64, 128" in reason(kernel, on_cuda(B, N, N, c_in), 8)


def test_deepspeed_refuses_float32_short_rows_wide_heads_and_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x = KERNEL["deepspeed"], on_cuda(B, 3, 17, c_in)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert reason(kernel, x) is None
    assert "torch.float32" in reason(kernel, on_cuda(B, 3, 17, c_in, dtype=torch.float32))
    assert "16 positions, and it knows 17 and more" in reason(kernel, on_cuda(B, 3, 16, c_in))
    assert "head width is 128, and gradients stop at 64" in reason(kernel, x, 128)
    with torch.no_grad():
        assert reason(kernel, x, 128) is None
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert "nvcc" in reason(kernel, x)
    prebuilt = ModuleType("deepspeed.ops.evoformer_attn_op")
    prebuilt.__spec__ = ModuleSpec(prebuilt.__name__, None)
    monkeypatch.setitem(sys.modules, prebuilt.__name__, prebuilt)
    assert reason(kernel, x) is None


def test_cuequivariance_refuses_triangles_of_other_sizes_or_without_biases(monkeypatch: pytest.MonkeyPatch) -> None:
    def triangle(c_z: int, hidden: int) -> str | None:
        layer = redrawn(TriangleMultiplication(c_z, "outgoing", hidden)).bfloat16()
        parts = parts_of(layer, torch.randn(1, N, N, c_z, dtype=torch.bfloat16))
        return cuequivariance.TRIANGLE_MULTIPLICATION.refuses(on_cuda(B, N, N, c_z), parts, None)

    assert triangle(32, 32) is None
    assert "z has 32 channels and 64 hidden ones" in triangle(32, 64)
    assert "equal multiples of 32" in triangle(16, 16)

    def older(x, direction="outgoing", mask=None, p_in_weight=None):
        raise AssertionError

    monkeypatch.setattr(sys.modules["cuequivariance_torch"], "triangle_multiplicative_update", older)
    assert "knows no biases" in triangle(32, 32)


def test_they_are_taken_only_by_name() -> None:
    assert not any(kernel.suits() for kernel in (*KERNEL.values(), cuequivariance.TRIANGLE_MULTIPLICATION))
