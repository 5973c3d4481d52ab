"""The Triton kernel in Triton's interpreter, on a CPU; `test_triton_attention.py` runs this file in its own process.

Triton reads `TRITON_INTERPRET` when it is imported, so no other test can share the process. A block has 16 positions.
bfloat16 is left out: the interpreter multiplies it wrongly.
"""

from collections.abc import Iterator
from copy import deepcopy

import pytest
import torch
from oracles import redrawn
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from evoformer import MSARowAttentionWithPairBias, MultiHeadAttention, TriangleAttention
from evoformer.execution import Execution, set_execution
from evoformer.kernels import kernels_used, triton_programs

c_in, N_head = 7, 2
TRITON, REFERENCE = Execution(kernel={"attention": "triton"}), Execution(kernel={"attention": "reference"})


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_programs, "LARGEST_BLOCK", {torch.float32: 16, torch.float16: 16})


def module(c: int = 8, gated: bool = True, dtype: torch.dtype = torch.float32) -> MultiHeadAttention:
    return redrawn(MultiHeadAttention(c_in, c, N_head, attn_dim=-2, gated=gated)).to(dtype)


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def draw_mask(*shape: int) -> Tensor:
    """Zeros and ones; the first row has no key, and the second none in its first block where there are more."""
    mask = torch.rand(*shape) > 0.3
    mask[..., 0, :] = False
    mask[..., 1, : min(16, shape[-1] - 2)] = False
    mask[..., 1, -1] = True
    return mask


def assert_agrees(
    mha: MultiHeadAttention, x: Tensor, bias: Tensor | None, mask: Tensor | None, execution: Execution = TRITON
) -> None:
    """Output and all gradients, as near to those in float64 as the reference's."""
    direction = torch.randn_like(x)
    reference, ours = (gradients(mha, x, bias, mask, direction, chosen) for chosen in (REFERENCE, execution))
    exact = gradients(
        deepcopy(mha).double(), *(None if t is None else t.double() for t in (x, bias)), mask, direction, REFERENCE
    )
    for a, b, wanted in zip(ours, reference, exact, strict=True):
        assert a.dtype == b.dtype
        scale = max(1.0, wanted.abs().max().item())
        floor = 1e-5 if x.dtype == torch.float32 else 2e-3
        error, allowed = (a - wanted).abs().max().item(), 2 * (b - wanted).abs().max().item() + floor * scale
        assert error <= allowed


def gradients(
    mha: MultiHeadAttention, x: Tensor, bias: Tensor | None, mask: Tensor | None, direction: Tensor, chosen: Execution
) -> list[Tensor]:
    """The output and the gradients of x, of all weights and of the bias."""
    set_execution(mha, chosen)
    inputs = [x, *mha.parameters()] if bias is None else [x, *mha.parameters(), bias]
    o = mha(x, bias, mask)
    return [o, *torch.autograd.grad(o, inputs, direction.to(o.dtype))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("N", "c"), [(2, 8), (5, 8), (16, 16), (19, 32), (33, 8), (17, 64)])
def test_agrees_with_the_reference_at_any_length_and_width(N: int, c: int, dtype: torch.dtype) -> None:
    mha = module(c, dtype=dtype)
    assert_agrees(mha, draw(1, 3, N, c_in, dtype=dtype), draw(N_head, N, N, dtype=dtype), draw_mask(1, 3, N))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biases", [None, 1, 2])
def test_agrees_with_the_reference_whatever_is_left_out(biases: int | None, masked: bool, gated: bool) -> None:
    """A bias for all of the batch, and one for each index of it."""
    N = 6
    bias = None if biases is None else draw(biases, N_head, N, N)
    assert_agrees(module(gated=gated), draw(2, 2, N, c_in), bias, draw_mask(2, 2, N) if masked else None)


def test_a_row_without_keys_gets_the_mean_of_the_values_and_no_gradient_through_its_logits() -> None:
    mha, x, bias = module(gated=False), draw(1, 2, 5, c_in), draw(N_head, 5, 5)
    set_execution(mha, TRITON)
    mask = torch.zeros(1, 2, 5)
    o = mha(x, bias, mask)
    mean = mha.linear_v(x).mean(-2, keepdim=True).expand(1, 2, 5, -1)
    assert_close(o, mha.linear_o(mean))
    gradients = torch.autograd.grad(o.square().sum(), [bias, mha.linear_q.weight, mha.linear_k.weight])
    assert all((gradient == 0).all() for gradient in gradients)


def test_a_masked_key_stays_hidden_however_low_the_other_logits() -> None:
    mha, x = module(gated=False), draw(1, 1, 18, c_in)
    bias, mask = torch.full((N_head, 18, 18), -3e4), torch.ones(18)
    bias[..., 3], mask[3] = 3e4, 0
    nn.init.zeros_(mha.linear_q.weight)  # beside such a bias float32 keeps two digits of a product
    set_execution(mha, REFERENCE)
    expected = mha(x, bias, mask)
    set_execution(mha, TRITON)
    assert_close(mha(x, bias, mask), expected)


def test_large_logits_overflow_nowhere() -> None:
    assert_agrees(module(), draw(1, 2, 18, c_in), (1e4 * torch.randn(N_head, 18, 18)).requires_grad_(), None)


def test_layers_agree_with_the_reference() -> None:
    for layer, inputs in [
        (MSARowAttentionWithPairBias(c_in, 5, c=8, N_head=2), (draw(3, 6, c_in), draw(6, 6, 5), draw_mask(3, 6))),
        (TriangleAttention(5, "ending_node", c=8, N_head=2), (draw(6, 6, 5), draw_mask(6, 6))),
    ]:
        redrawn(layer).float()
        results = []
        for execution in (REFERENCE, TRITON):
            set_execution(layer, execution)
            with kernels_used() as used:
                results.append(layer(*inputs))
        assert used["attention", "triton"] == 1
        assert_close(results[1], results[0], rtol=0, atol=1e-5 * max(1.0, results[0].abs().max().item()))


def test_slices_and_recomputing_change_nothing() -> None:
    execution = Execution(kernel={"attention": "triton"}, slice_size=2, recompute="layer")
    assert_agrees(module(), draw(1, 3, 5, c_in), draw(N_head, 5, 5), draw_mask(1, 3, 5), execution)


def test_the_gradient_of_the_bias_is_the_same_on_every_run() -> None:
    mha, x, bias = module(), draw(1, 4, 6, c_in), draw(N_head, 6, 6)
    set_execution(mha, TRITON)
    direction = torch.randn_like(x)
    first, second = (torch.autograd.grad(mha(x, bias), bias, direction)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_no_tensor_has_the_logits_of_all_rows() -> None:
    N, n_rows = 13, 2
    mha, x, bias = module(), draw(1, n_rows, N, c_in), draw(N_head, N, N)
    set_execution(mha, TRITON)

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **kwargs or {})
            for t in out if isinstance(out, tuple) else (out,):
                assert not isinstance(t, Tensor) or t.numel() < n_rows * N_head * N * N, func
            return out

    with Watch():
        mha(x, bias, draw_mask(1, n_rows, N)).sum().backward()


def test_only_what_the_backward_pass_reads_is_kept() -> None:
    """x, its projections, the gated output, which the last layer keeps anyway, and one number a query and head."""
    N, n_rows, c = 17, 4, 8
    mha, x, bias = module(c), draw(1, n_rows, N, c_in), draw(N_head, N, N)
    set_execution(mha, TRITON)
    seen: dict[int, int] = {}
    parameters = {p.data_ptr() for p in mha.parameters()}

    def pack(t: Tensor) -> Tensor:
        if t.data_ptr() not in parameters:
            seen[t.data_ptr()] = t.numel()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        mha(x, bias)
    tokens = n_rows * N
    assert sum(seen.values()) == tokens * (c_in + 5 * N_head * c + N_head) + bias.numel()


def functional(mha: MultiHeadAttention, bias: Tensor):
    weights = dict(mha.named_parameters())
    return lambda x, b=bias: functional_call(mha, weights, (x, b)).square().sum()


def test_goes_through_func_grad_and_vmap_of_it() -> None:
    mha, x, bias = module(), draw(2, 1, 5, c_in).detach(), draw(N_head, 5, 5).detach()
    results = []
    for execution in (REFERENCE, TRITON):
        set_execution(mha, execution)
        f = functional(mha, bias)
        results.append([*grad(f, argnums=(0, 1))(x[0], bias), *vmap(grad(f, argnums=(0, 1)), (0, None))(x, bias)])
    for expected, ours in zip(*results, strict=True):
        assert_close(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_compiler", "without_shape_checks")
def test_goes_through_compile_and_export() -> None:
    mha, x, bias, mask = module(), draw(2, 5, c_in), draw(N_head, 5, 5), draw_mask(2, 5)
    set_execution(mha, TRITON)
    compiled = torch.compile(mha, fullgraph=True, backend="aot_eager")
    inputs = [x, bias, *mha.parameters()]
    direction = torch.randn_like(x)
    eager = torch.autograd.grad(mha(x, bias, mask), inputs, direction)
    for ours, expected in zip(torch.autograd.grad(compiled(x, bias, mask), inputs, direction), eager, strict=True):
        assert_close(ours, expected)
    with torch.no_grad():
        exported = torch.export.export(mha, (x, bias, mask)).module()
        assert_close(exported(x, bias, mask), mha(x, bias, mask))


def test_autocast_runs_it_in_low_precision() -> None:
    mha, x, bias = module(), draw(1, 2, 5, c_in), draw(N_head, 5, 5)
    set_execution(mha, TRITON)
    expected = mha(x, bias)
    with torch.autocast("cpu", dtype=torch.float16):
        o = mha(x, bias)
    assert o.dtype == torch.float16
    assert_close(o.float(), expected, rtol=0, atol=2e-2 * expected.abs().max().item())
    o.float().sum().backward()
    assert mha.linear_q.weight.grad.dtype == torch.float32


def test_an_empty_batch_gives_an_empty_result() -> None:
    mha, x = module(), draw(0, 5, c_in)
    set_execution(mha, TRITON)
    mha(x, draw(N_head, 5, 5)).sum().backward()
    assert x.grad.shape == x.shape
