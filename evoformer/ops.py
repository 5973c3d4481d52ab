"""The operations that layers are made of, tensors to tensors, each run by the kernel that an `Execution` chooses.

`kernels/reference.py` states what they compute.
"""

import math
from typing import Any

from torch import Tensor, nn

from evoformer.execution import Execution, Op
from evoformer.kernels import choose
from evoformer.kernels.parts import AttentionParts, Norm, OuterProductParts, TransitionParts, TriangleParts
from evoformer.kernels.reference import (
    at_least_float32,
    attention,
    masked_mean,
    mean_query,
    outer_product_sum,
    split_heads,
)

__all__ = [
    "at_least_float32",
    "attention",
    "gated_attention",
    "global_attention",
    "masked_mean",
    "mean_query",
    "outer_product_mean",
    "outer_product_sum",
    "pair_bias",
    "split_heads",
    "transition",
    "triangle_multiplication",
]


def gated_attention(
    x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None, execution: Execution
) -> Tensor:
    """Multi-head attention along every row.

    Shapes:
        x: [B, rows, N, c_in]
        bias: [B or 1, N_head, N, N], one for all rows
        mask: [B, rows, N], 0 hides a key
        returns: [B, rows, N, c_out]
    """
    return _run("attention", execution, x, parts, bias, mask)


def global_attention(
    x: Tensor, parts: AttentionParts, bias: Tensor | None, mask: Tensor | None, execution: Execution
) -> Tensor:
    """Multi-head attention along every row with one query for all positions.

    Shapes:
        x: [B, rows, N, c_in]
        bias: [B or 1, N_head, 1, N], one for all rows
        mask: [B, rows, N], 0 hides a key, and a position to the query
        returns: [B, rows, N, c_out]; without a gate, [B, rows, 1, c_out]
    """
    return _run("global_attention", execution, x, parts, bias, mask)


def pair_bias(z: Tensor, norm: Norm, linear: nn.Linear, execution: Execution) -> Tensor:
    """What a pair adds to the logits of each head: a linear layer of its norm.

    Shapes:
        z: [*, N_res, N_res, c_z]
        linear: from c_z to N_head channels
        returns: [*, N_head, N_res, N_res]
    """
    flat = _one_batch_axis(z, 3)
    bias = _run("pair_bias", execution, flat, norm, linear)
    return bias.reshape(*z.shape[:-3], *bias.shape[1:])


def outer_product_mean(m: Tensor, parts: OuterProductParts, mask: Tensor | None, execution: Execution) -> Tensor:
    """The mean over sequences of the outer product of two columns, projected.

    Shapes:
        m: [*, N_seq, N_res, c_m]
        mask: [*, N_seq, N_res], 1 where the residue exists
        returns: [*, N_res, N_res, c_z]
    """
    flat, flat_mask = _one_batch_axis(m, 3), None if mask is None else _one_batch_axis(mask, 2)
    z = _run("outer_product_mean", execution, flat, parts, flat_mask)
    return z.reshape(*m.shape[:-3], *z.shape[1:])


def triangle_multiplication(z: Tensor, parts: TriangleParts, mask: Tensor | None, execution: Execution) -> Tensor:
    """Update of an edge from the two other edges of every triangle.

    Shapes:
        z: [*, N_res, N_res, c_z]
        mask: [*, N_res, N_res], 1 where both residues exist
        returns: [*, N_res, N_res, c_z]
    """
    flat, flat_mask = _one_batch_axis(z, 3), None if mask is None else _one_batch_axis(mask, 2)
    return _run("triangle_multiplication", execution, flat, parts, flat_mask).reshape(z.shape)


def transition(x: Tensor, parts: TransitionParts, execution: Execution) -> Tensor:
    """A two-layer perceptron at each position: [*, c] to [*, c]."""
    flat = _one_batch_axis(x if x.ndim > 1 else x[None], 2)
    return _run("transition", execution, flat, parts).reshape(x.shape)


def _run(op: Op, execution: Execution, *operands: Any) -> Tensor:
    """The result of the kernel that is chosen."""
    return choose(op, execution, *operands).run(*operands, execution=execution)


def _one_batch_axis(x: Tensor, n: int) -> Tensor:
    """All axes but the last n as one, a view where there can be one."""
    return x.reshape(math.prod(x.shape[:-n]), *x.shape[-n:])
