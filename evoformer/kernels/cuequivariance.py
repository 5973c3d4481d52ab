"""NVIDIA's cuEquivariance: its triangle attention and its triangle multiplication.

`triangle_attention(q, k, v, bias, mask, scale)` takes the layout of `core.py`, a bias [B, 1, N_head, N, N], required,
and a bool mask [B, rows, 1, 1, N] that is True where a key is seen; what a row without any key gets is left open.
`triangle_multiplicative_update` takes the pair, a mask [B, N, N] and the packed weights, the projections to a before
those to b.
"""

import inspect

import torch
from torch import Tensor

from evoformer.execution import Execution, recomputed
from evoformer.kernels.core import (
    absent,
    around,
    head_width,
    not_on_cuda,
    other_dtype,
    seen_keys,
    when,
    with_dead_rows,
)
from evoformer.kernels.kernel import Kernel, by_name_only, compute_dtype, forward_mode
from evoformer.kernels.parts import AttentionParts, TriangleParts
from evoformer.kernels.streaming import LAYER_NORM_EPS, refusal

PACKAGE = "cuequivariance_torch"
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None) -> Tensor:
    """As `core.py` says."""
    from cuequivariance_torch import triangle_attention

    B, _, N_head, N, c = q.shape
    bias = q.new_zeros(B, 1, N_head, N, N) if bias is None else bias.expand(B, -1, -1, -1, -1).contiguous()
    seen = None if mask is None else seen_keys(mask).contiguous()
    # Versions before 0.10 want contiguous inputs.
    o = triangle_attention(q.contiguous(), k.contiguous(), v.contiguous(), bias, mask=seen, scale=c**-0.5)
    return with_dead_rows(o, v, mask)


def refuses_attention(x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None) -> str | None:
    """Why it cannot serve as gated attention, or None."""
    c, dtype = head_width(parts), compute_dtype(x)
    widest, step = (32, 4) if dtype == torch.float32 else (128, 8)
    return (
        absent(PACKAGE)
        or not_on_cuda(x)
        or other_dtype(x, DTYPES)
        or when(c > widest or c % step != 0, f"the head width is {c}, and it knows multiples of {step} up to {widest}")
        or when(
            dtype == torch.float32 and torch.is_grad_enabled() and not torch.backends.cuda.matmul.allow_tf32,
            "its gradients of float32 need torch.backends.cuda.matmul.allow_tf32, which is off",
        )
        or forward_mode()
    )


def triangle_multiplication(z: Tensor, parts: TriangleParts, mask: Tensor | None, *, execution: Execution) -> Tensor:
    """`reference.triangle_multiplication`, all rows at once."""
    return (recomputed(_update) if execution.recompute == "layer" else _update)(z, parts, mask)


def _update(z: Tensor, parts: TriangleParts, mask: Tensor | None) -> Tensor:
    from cuequivariance_torch import triangle_multiplicative_update

    dtype = compute_dtype(z)
    weights = {
        "norm_in_weight": parts.norm_in.weight,
        "norm_in_bias": parts.norm_in.bias,
        "p_in_weight": torch.cat([parts.a_p.weight, parts.b_p.weight]),
        "p_in_bias": torch.cat([parts.a_p.bias, parts.b_p.bias]),
        "g_in_weight": torch.cat([parts.a_g.weight, parts.b_g.weight]),
        "g_in_bias": torch.cat([parts.a_g.bias, parts.b_g.bias]),
        "norm_out_weight": parts.norm_out.weight,
        "norm_out_bias": parts.norm_out.bias,
        "p_out_weight": parts.z.weight,
        "p_out_bias": parts.z.bias,
        "g_out_weight": parts.g.weight,
        "g_out_bias": parts.g.bias,
    }
    return triangle_multiplicative_update(
        z.to(dtype),
        direction="outgoing" if parts.outgoing else "incoming",
        mask=None if mask is None else mask.to(dtype),
        eps=LAYER_NORM_EPS,
        **{name: weight.to(dtype) for name, weight in weights.items()},
    )


def refuses_triangle_multiplication(z: Tensor, parts: TriangleParts, mask: Tensor | None) -> str | None:
    """Why it cannot serve as triangle multiplication, or None."""
    *modules, _ = parts
    c_z, c = z.shape[-1], parts.a_p.out_features
    return (
        absent(PACKAGE)
        or not_on_cuda(z)
        or other_dtype(z, DTYPES)
        or when(
            c != c_z or c % 32 != 0, f"z has {c_z} channels and {c} hidden ones, and it knows equal multiples of 32"
        )
        or _knows_no_biases()
        or refusal(z, *modules)
    )


def _knows_no_biases() -> str | None:
    from cuequivariance_torch import triangle_multiplicative_update

    known = inspect.signature(triangle_multiplicative_update).parameters
    return when("p_in_bias" not in known, f"the {PACKAGE} that is installed knows no biases of the projections")


ATTENTION = Kernel("cuequivariance", around(attention), refuses_attention, by_name_only)
TRIANGLE_MULTIPLICATION = Kernel(
    "cuequivariance", triangle_multiplication, refuses_triangle_multiplication, by_name_only
)
