"""The programs of `triton_attention.py`, in Triton's language, and how they are launched. Importing it imports Triton.

All tensors are contiguous, [rows, N, N_head, c] or [rows, N_head, N]; a program owns a block of one head of one row:
of queries in `_forward` and `_backward_q`, of keys in `_backward_kv`. In `_backward_bias` it owns a block of the bias
and adds up over the rows, in their order. The logits exist a block at a time, in float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

SMALLEST_BLOCK = 16  # of a matrix product in Triton
LARGEST_BLOCK = {torch.float16: 64, torch.bfloat16: 64, torch.float32: 32}

# What a mask says of a key.
HIDDEN = tl.constexpr(0)
SEEN = tl.constexpr(1)
ALIKE = tl.constexpr(2)  # all keys of the row are hidden: each has the same weight, whatever its logit


@triton.jit
def _load(X, row, h, at, N, N_head, C: tl.constexpr, C_BLOCK: tl.constexpr):
    """Positions `at` of one head of one row, [block, C_BLOCK]; zeros past the ends."""
    c_at = tl.arange(0, C_BLOCK)
    offsets = ((row * N + at[:, None]) * N_head + h) * C + c_at[None, :]
    return tl.load(X + offsets, mask=(at[:, None] < N) & (c_at[None, :] < C), other=0.0)


@triton.jit
def _store(X, x, row, h, at, N, N_head, C: tl.constexpr, C_BLOCK: tl.constexpr):
    """The counterpart of `_load`."""
    c_at = tl.arange(0, C_BLOCK)
    offsets = ((row * N + at[:, None]) * N_head + h) * C + c_at[None, :]
    tl.store(X + offsets, x.to(X.dtype.element_ty), mask=(at[:, None] < N) & (c_at[None, :] < C))


@triton.jit
def _logits(q, k, BIAS, MASK, row, h, q_at, k_at, N, N_head, bias_rows, scale, PRECISION: tl.constexpr):
    """Logits of a block of queries and keys, -inf where hidden; and what the mask says of the keys."""
    logits = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    if BIAS is not None:
        offsets = ((row // bias_rows * N_head + h) * N + q_at[:, None]) * N + k_at[None, :]
        logits += tl.load(BIAS + offsets, mask=(q_at[:, None] < N) & (k_at[None, :] < N), other=0.0).to(tl.float32)
    if MASK is not None:
        kind = tl.load(MASK + row * N + k_at, mask=k_at < N, other=0).to(tl.int32)
    else:
        kind = (k_at < N).to(tl.int32)
    logits = tl.where(kind[None, :] == ALIKE, 0.0, logits)
    return tl.where(kind[None, :] == HIDDEN, float("-inf"), logits), kind


@triton.jit
def _logits_gradient(a, kind, o_grad, v, delta, PRECISION: tl.constexpr):
    """From the weights a [q, k] and the gradient of the output; zero for keys whose logits do not count."""
    a_grad = tl.dot(o_grad, tl.trans(v), input_precision=PRECISION)
    return tl.where(kind[None, :] == SEEN, a * (a_grad - delta[:, None]), 0.0)


@triton.jit
def _ungated_gradient(GRAD, GATE, row, h, at, N, N_head, C: tl.constexpr, C_BLOCK: tl.constexpr):
    """Gradient of the output before the gate."""
    grad = _load(GRAD, row, h, at, N, N_head, C, C_BLOCK)
    if GATE is not None:
        gate = tl.sigmoid(_load(GATE, row, h, at, N, N_head, C, C_BLOCK).to(tl.float32))
        grad = (grad.to(tl.float32) * gate).to(grad.dtype)
    return grad


@triton.jit
def _block_of_head(N, N_head, BLOCK: tl.constexpr):
    """Row, head and positions of this program."""
    n_blocks = tl.cdiv(N, BLOCK)
    program = tl.program_id(0)
    at = program % n_blocks * BLOCK + tl.arange(0, BLOCK)
    row = (program // n_blocks // N_head).to(tl.int64)  # offsets can pass 2^31
    return row, program // n_blocks % N_head, at


@triton.jit
def _forward(
    Q, K, V, GATE, BIAS, MASK, OUT, LSE, N, N_head, bias_rows, scale,
    C: tl.constexpr, C_BLOCK: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, h, q_at = _block_of_head(N, N_head, BLOCK)
    q = _load(Q, row, h, q_at, N, N_head, C, C_BLOCK)
    highest = tl.full([BLOCK], -1e38, tl.float32)  # finite, so that a block of hidden keys gives no inf - inf
    total = tl.zeros([BLOCK], tl.float32)
    o = tl.zeros([BLOCK, C_BLOCK], tl.float32)
    for start in range(0, N, BLOCK):
        k_at = start + tl.arange(0, BLOCK)
        k = _load(K, row, h, k_at, N, N_head, C, C_BLOCK)
        v = _load(V, row, h, k_at, N, N_head, C, C_BLOCK)
        logits, _ = _logits(q, k, BIAS, MASK, row, h, q_at, k_at, N, N_head, bias_rows, scale, PRECISION)
        before, highest = highest, tl.maximum(highest, tl.max(logits, 1))
        shrink = tl.exp(before - highest)
        a = tl.exp(logits - highest[:, None])
        total = total * shrink + tl.sum(a, 1)
        o = o * shrink[:, None] + tl.dot(a.to(v.dtype), v, input_precision=PRECISION)
    o /= total[:, None]
    if GATE is not None:
        o *= tl.sigmoid(_load(GATE, row, h, q_at, N, N_head, C, C_BLOCK).to(tl.float32))
    _store(OUT, o, row, h, q_at, N, N_head, C, C_BLOCK)
    tl.store(LSE + (row * N_head + h) * N + q_at, highest + tl.log(total), mask=q_at < N)


@triton.jit
def _backward_q(
    GRAD, Q, K, V, GATE, BIAS, MASK, OUT, LSE, DELTA, Q_GRAD, GATE_GRAD, N, N_head, bias_rows, scale,
    C: tl.constexpr, C_BLOCK: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, h, q_at = _block_of_head(N, N_head, BLOCK)
    q = _load(Q, row, h, q_at, N, N_head, C, C_BLOCK)
    o_grad = _ungated_gradient(GRAD, GATE, row, h, q_at, N, N_head, C, C_BLOCK)
    # out = gate * o, so grad * out is both o_grad * o and, times 1 - gate, the gradient of the gate's logit.
    product = _load(GRAD, row, h, q_at, N, N_head, C, C_BLOCK).to(tl.float32)
    product *= _load(OUT, row, h, q_at, N, N_head, C, C_BLOCK).to(tl.float32)
    delta = tl.sum(product, 1)
    tl.store(DELTA + (row * N_head + h) * N + q_at, delta, mask=q_at < N)
    if GATE is not None:
        gate = tl.sigmoid(_load(GATE, row, h, q_at, N, N_head, C, C_BLOCK).to(tl.float32))
        _store(GATE_GRAD, product * (1 - gate), row, h, q_at, N, N_head, C, C_BLOCK)
    lse = tl.load(LSE + (row * N_head + h) * N + q_at, mask=q_at < N, other=0.0)
    q_grad = tl.zeros([BLOCK, C_BLOCK], tl.float32)
    for start in range(0, N, BLOCK):
        k_at = start + tl.arange(0, BLOCK)
        k = _load(K, row, h, k_at, N, N_head, C, C_BLOCK)
        v = _load(V, row, h, k_at, N, N_head, C, C_BLOCK)
        logits, kind = _logits(q, k, BIAS, MASK, row, h, q_at, k_at, N, N_head, bias_rows, scale, PRECISION)
        a = tl.exp(logits - lse[:, None])
        logits_grad = _logits_gradient(a, kind, o_grad, v, delta, PRECISION)
        q_grad += tl.dot(logits_grad.to(k.dtype), k, input_precision=PRECISION)
    _store(Q_GRAD, q_grad * scale, row, h, q_at, N, N_head, C, C_BLOCK)


@triton.jit
def _backward_kv(
    GRAD, Q, K, V, GATE, BIAS, MASK, LSE, DELTA, K_GRAD, V_GRAD, N, N_head, bias_rows, scale,
    C: tl.constexpr, C_BLOCK: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, h, k_at = _block_of_head(N, N_head, BLOCK)
    k = _load(K, row, h, k_at, N, N_head, C, C_BLOCK)
    v = _load(V, row, h, k_at, N, N_head, C, C_BLOCK)
    k_grad = tl.zeros([BLOCK, C_BLOCK], tl.float32)
    v_grad = tl.zeros([BLOCK, C_BLOCK], tl.float32)
    for start in range(0, N, BLOCK):
        q_at = start + tl.arange(0, BLOCK)
        q = _load(Q, row, h, q_at, N, N_head, C, C_BLOCK)
        o_grad = _ungated_gradient(GRAD, GATE, row, h, q_at, N, N_head, C, C_BLOCK)
        lse = tl.load(LSE + (row * N_head + h) * N + q_at, mask=q_at < N, other=0.0)
        delta = tl.load(DELTA + (row * N_head + h) * N + q_at, mask=q_at < N, other=0.0)
        logits, kind = _logits(q, k, BIAS, MASK, row, h, q_at, k_at, N, N_head, bias_rows, scale, PRECISION)
        a = tl.exp(logits - lse[:, None])
        v_grad += tl.dot(tl.trans(a.to(v.dtype)), o_grad, input_precision=PRECISION)
        logits_grad = _logits_gradient(a, kind, o_grad, v, delta, PRECISION)
        k_grad += tl.dot(tl.trans(logits_grad.to(q.dtype)), q, input_precision=PRECISION)
    _store(K_GRAD, k_grad * scale, row, h, k_at, N, N_head, C, C_BLOCK)
    _store(V_GRAD, v_grad, row, h, k_at, N, N_head, C, C_BLOCK)


@triton.jit
def _backward_bias(
    GRAD, Q, K, V, GATE, BIAS, MASK, LSE, DELTA, BIAS_GRAD, N, N_head, bias_rows, scale,
    C: tl.constexpr, C_BLOCK: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    n_blocks = tl.cdiv(N, BLOCK)
    program = tl.program_id(0)
    k_at = program % n_blocks * BLOCK + tl.arange(0, BLOCK)
    q_at = program // n_blocks % n_blocks * BLOCK + tl.arange(0, BLOCK)
    head = (program // n_blocks // n_blocks).to(tl.int64)  # of all heads of all biases
    h = head % N_head
    bias_grad = tl.zeros([BLOCK, BLOCK], tl.float32)
    for i in range(bias_rows):
        row = head // N_head * bias_rows + i
        q = _load(Q, row, h, q_at, N, N_head, C, C_BLOCK)
        k = _load(K, row, h, k_at, N, N_head, C, C_BLOCK)
        v = _load(V, row, h, k_at, N, N_head, C, C_BLOCK)
        o_grad = _ungated_gradient(GRAD, GATE, row, h, q_at, N, N_head, C, C_BLOCK)
        lse = tl.load(LSE + (row * N_head + h) * N + q_at, mask=q_at < N, other=0.0)
        delta = tl.load(DELTA + (row * N_head + h) * N + q_at, mask=q_at < N, other=0.0)
        logits, kind = _logits(q, k, BIAS, MASK, row, h, q_at, k_at, N, N_head, bias_rows, scale, PRECISION)
        a = tl.exp(logits - lse[:, None])
        bias_grad += _logits_gradient(a, kind, o_grad, v, delta, PRECISION)
    offsets = (head * N + q_at[:, None]) * N + k_at[None, :]
    tl.store(BIAS_GRAD + offsets, bias_grad, mask=(q_at[:, None] < N) & (k_at[None, :] < N))


def forward(
    q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, bias: Tensor | None, kinds: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Launch the forward pass: the gated output and the logsumexp of the logits."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    gate, bias, kinds = (None if x is None else x.contiguous() for x in (gate, bias, kinds))
    rows, N, N_head, _ = q.shape
    out, lse = torch.empty_like(q), q.new_empty(rows, N_head, N, dtype=torch.float32)
    sizes, constants = _sizes(q, bias), _constants(q)
    grid = rows * N_head * triton.cdiv(N, constants["BLOCK"])
    if grid:
        with torch.cuda.device_of(q):
            _forward[(grid,)](q, k, v, gate, bias, kinds, out, lse, *sizes, **constants)
    return out, lse


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor | None,
    bias: Tensor | None,
    kinds: Tensor | None,
    out: Tensor,
    lse: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Launch the backward pass: gradients of q, k, v, the gate and the bias; an empty one for what there is not."""
    grad, q, k, v = grad.to(q.dtype).contiguous(), q.contiguous(), k.contiguous(), v.contiguous()
    gate, bias, kinds = (None if x is None else x.contiguous() for x in (gate, bias, kinds))
    inputs = (grad, q, k, v, gate, bias, kinds)
    rows, N, N_head, _ = q.shape
    gradients = [q.new_empty(0) if x is None else torch.empty_like(x) for x in (q, k, v, gate)]
    q_grad, k_grad, v_grad, gate_grad = gradients
    bias_grad = q.new_empty(0) if bias is None else torch.zeros_like(bias, dtype=torch.float32)
    delta = torch.empty_like(lse)
    sizes, constants = _sizes(q, bias), _constants(q)
    n_blocks = triton.cdiv(N, constants["BLOCK"])
    grid = (rows * N_head * n_blocks,)
    if q.numel():
        with torch.cuda.device_of(q):
            _backward_q[grid](*inputs, out, lse, delta, q_grad, gate_grad, *sizes, **constants)
            _backward_kv[grid](*inputs, lse, delta, k_grad, v_grad, *sizes, **constants)
            if bias is not None:
                grid = (len(bias) * N_head * n_blocks**2,)
                _backward_bias[grid](*inputs, lse, delta, bias_grad, *sizes, **constants)
    return q_grad, k_grad, v_grad, gate_grad, bias_grad if bias is None else bias_grad.to(bias.dtype)


def _sizes(q: Tensor, bias: Tensor | None) -> tuple[int, int, int, float]:
    """N, N_head, how many rows share a bias, and the scale of the logits."""
    rows, N, N_head, c = q.shape
    return N, N_head, rows if bias is None else rows // len(bias), c**-0.5


def _constants(q: Tensor) -> dict[str, int | str]:
    """What the programs are compiled for."""
    _, N, _, c = q.shape
    block = min(LARGEST_BLOCK[q.dtype], max(SMALLEST_BLOCK, triton.next_power_of_2(N)))
    exact = q.dtype != torch.float32 or torch.get_float32_matmul_precision() == "highest"
    return {
        "C": c,
        "C_BLOCK": max(SMALLEST_BLOCK, triton.next_power_of_2(c)),
        "BLOCK": block,
        "PRECISION": "ieee" if exact else "tf32",
        # With four warps or three stages the backward programs spill registers or shared memory (compiled for sm_90).
        "num_warps": 8,
        "num_stages": 2,
    }
