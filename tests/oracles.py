"""The AlphaFold 2 supplement's Algorithms as slow, plain loops, and DeepMind's code where the two differ.

Each reads its weights from the layer that it is compared with, takes tensors without batch axes, and knows nothing of
the library's own operations. Masks hold 1 where something is real; None hides nothing.
"""

import itertools
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from evoformer import (
    EvoformerBlock,
    EvoformerStack,
    ExtraMSAStack,
    InputEmbedder,
    MSAColumnAttention,
    MSAColumnGlobalAttention,
    MSARowAttentionWithPairBias,
    MultiHeadAttention,
    OuterProductMean,
    PairStack,
    ProfileEmbedder,
    TriangleAttention,
    TriangleMultiplication,
)

Module = TypeVar("Module", bound=nn.Module)


def redrawn(module: Module, std: float = 0.5) -> Module:
    """The module in float64 and evaluation mode, all weights drawn at random.

    The last layers of fresh modules are zero, and anything agrees with those.
    """
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=std)
    return module.double().eval()


def over_batch(algorithm: Callable[..., Tensor], layer: nn.Module, n_batch: int, *inputs: Tensor | None) -> Tensor:
    """An algorithm on each index of the first n_batch axes."""
    if n_batch == 0:
        return algorithm(layer, *inputs)
    lengths = {len(x) for x in inputs if x is not None}
    (length,) = lengths
    each = ([None if x is None else x[i] for x in inputs] for i in range(length))
    return torch.stack([over_batch(algorithm, layer, n_batch - 1, *x) for x in each])


def linear(layer: nn.Module, x: Tensor) -> Tensor:
    """W x + b, with the weight [c_out, c_in]."""
    y = x @ layer.weight.mT
    return y if layer.bias is None else y + layer.bias


def layer_norm(layer: nn.Module, x: Tensor) -> Tensor:
    """Over the channels, with the biased variance and 1e-5 inside the root."""
    mean = x.sum(-1, keepdim=True) / x.shape[-1]
    variance = ((x - mean) ** 2).sum(-1, keepdim=True) / x.shape[-1]
    return (x - mean) / (variance + 1e-5) ** 0.5 * layer.weight + layer.bias


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def heads(x: Tensor, N_head: int) -> Tensor:
    """[*, N_head * c] to [*, N_head, c]."""
    return x.reshape(*x.shape[:-1], N_head, -1)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None) -> Tensor:
    """What one query [c] of one head gets from keys [N, c] and values [N, c_v], with bias [N] and mask [N]."""
    logits = []
    for j in range(len(k)):
        logit = (q * k[j]).sum() / len(q) ** 0.5
        if bias is not None:
            logit = logit + bias[j]
        if mask is not None and mask[j] == 0:
            logit = torch.full_like(logit, -1e9)  # replaced, so a query without any key attends to all alike
        logits.append(logit)
    weights = [torch.exp(logit - max(logits)) for logit in logits]
    return sum(w / sum(weights) * v[j] for j, w in enumerate(weights))


def attention(mha: MultiHeadAttention, x: Tensor, bias: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """The common lines of Algorithms 7, 8, 13 and 14: x [N, c_in] attends to itself, bias [N_head, N, N], mask [N]."""
    q, k, v = (heads(linear(layer, x), mha.N_head) for layer in (mha.linear_q, mha.linear_k, mha.linear_v))
    rows = []
    for i in range(len(x)):
        o = [attend(q[i, h], k[:, h], v[:, h], None if bias is None else bias[h, i], mask) for h in range(mha.N_head)]
        rows.append(torch.cat(o))
    o = torch.stack(rows)
    if mha.gated:
        o = sigmoid(linear(mha.linear_g, x)) * o
    return linear(mha.linear_o, o)


def global_attention(
    mha: MultiHeadAttention, x: Tensor, bias: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    """Algorithm 19 after its LayerNorm: x [N, c_in] of one column, bias [N_head, 1, N], mask [N]."""
    mask = torch.ones(len(x)) if mask is None else mask
    q = sum(linear(mha.linear_q, x[s]) * float(mask[s]) for s in range(len(x))) / (float(mask.sum()) + 1e-10)
    q = heads(q, mha.N_head)
    k, v = linear(mha.linear_k, x), linear(mha.linear_v, x)
    o = [attend(q[h], k, v, None if bias is None else bias[h, 0], mask) for h in range(mha.N_head)]
    o = torch.cat(o)[None]
    if mha.gated:
        o = sigmoid(linear(mha.linear_g, x)) * o
    return linear(mha.linear_o, o)


def attention_along(
    mha: MultiHeadAttention, x: Tensor, bias: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    """Attention along any axis of x: one line at a time, each with the bias and the mask of its leading indices."""
    axis = mha.attn_dim % x.ndim
    lines = x.movedim(axis, -2)
    one_line = global_attention if mha.is_global else attention
    out = []
    for index in itertools.product(*(range(n) for n in lines.shape[:-2])):
        line_bias = None if bias is None else bias[index[: bias.ndim - 3]]
        line_mask = None if mask is None else mask[index[: mask.ndim - 1]]
        out.append(one_line(mha, lines[index], line_bias, line_mask))
    update = torch.stack(out)
    return update.reshape(*lines.shape[:-2], *update.shape[-2:]).movedim(-2, axis)


def algorithm_3(embedder: InputEmbedder, target_feat: Tensor, residue_index: Tensor, msa_feat: Tensor) -> list[Tensor]:
    """Input embeddings; line 3 is Algorithm 4."""
    a, b = linear(embedder.linear_tf_z_i, target_feat), linear(embedder.linear_tf_z_j, target_feat)
    relpos = algorithm_4(embedder, residue_index)
    N_seq, N_res, _ = msa_feat.shape
    z = [[a[i] + b[j] + relpos[i][j] for j in range(N_res)] for i in range(N_res)]
    m = [
        [
            linear(embedder.linear_msa_m, msa_feat[s, i]) + linear(embedder.linear_tf_m, target_feat[i])
            for i in range(N_res)
        ]
        for s in range(N_seq)
    ]
    return [stacked(m), stacked(z)]


def algorithm_4(embedder: InputEmbedder | ProfileEmbedder, residue_index: Tensor) -> list[list[Tensor]]:
    """Relative position encoding: the nearest of the bins -k to k, one-hot, then linear."""
    k = embedder.relpos_k
    rows = []
    for i in residue_index.tolist():
        row = []
        for j in residue_index.tolist():
            one_hot = torch.zeros(2 * k + 1, dtype=torch.float64)
            one_hot[max(-k, min(k, i - j)) + k] = 1
            row.append(linear(embedder.linear_relpos, one_hot))
        rows.append(row)
    return rows


def profile_embedding(
    embedder: ProfileEmbedder, aatype: Tensor, residue_index: Tensor, msa: Tensor, gap: Tensor, profile: Tensor
) -> list[Tensor]:
    """The small embedder: letters by looking up the columns of the weights."""
    N_seq, N_res = msa.shape
    relpos = algorithm_4(embedder, residue_index)

    def column(layer: nn.Module, i: int) -> Tensor:
        """Of the query's letter (the first 21 weights) and the profile (the other 22)."""
        return layer.weight[:, aatype[i]] + layer.weight[:, 21:] @ profile[i] + layer.bias

    m = [
        [
            embedder.linear_msa.weight[:, msa[s, i]]
            + embedder.linear_msa.bias
            + linear(embedder.linear_gap, gap[s].reshape(1))
            + column(embedder.linear_m, i)
            for i in range(N_res)
        ]
        for s in range(N_seq)
    ]
    z = [
        [column(embedder.linear_z_i, i) + column(embedder.linear_z_j, j) + relpos[i][j] for j in range(N_res)]
        for i in range(N_res)
    ]
    return [stacked(m), stacked(z)]


def stacked(rows: list[list[Tensor]]) -> Tensor:
    return torch.stack([torch.stack(row) for row in rows])


def algorithm_7(layer: MSARowAttentionWithPairBias, m: Tensor, z: Tensor, msa_mask: Tensor | None = None) -> Tensor:
    """MSA row-wise gated self-attention with pair bias."""
    m = layer_norm(layer.layer_norm_m, m)
    bias = linear(layer.linear_z, layer_norm(layer.layer_norm_z, z)).permute(2, 0, 1)
    rows = [attention(layer.mha, m[s], bias, None if msa_mask is None else msa_mask[s]) for s in range(len(m))]
    return torch.stack(rows)


def algorithm_8(layer: MSAColumnAttention, m: Tensor, msa_mask: Tensor | None = None) -> Tensor:
    """MSA column-wise gated self-attention."""
    m = layer_norm(layer.layer_norm_m, m)
    columns = [
        attention(layer.mha, m[:, i], None, None if msa_mask is None else msa_mask[:, i]) for i in range(m.shape[1])
    ]
    return torch.stack(columns, 1)


def transition(layer: nn.Module, x: Tensor) -> Tensor:
    """Algorithms 9 and 15."""
    a = linear(layer.linear_1, layer_norm(layer.layer_norm, x))
    return linear(layer.linear_2, torch.where(a > 0, a, 0.0))


def algorithm_10(layer: OuterProductMean, m: Tensor, msa_mask: Tensor | None = None) -> Tensor:
    """Outer product mean. DeepMind's code masks after the projections, and divides the last bias as well."""
    N_seq, N_res, _ = m.shape
    msa_mask = torch.ones(N_seq, N_res) if msa_mask is None else msa_mask
    m = layer_norm(layer.layer_norm, m)
    if layer.centered:
        mean = []
        for i in range(N_res):
            present = [m[s, i] for s in range(N_seq) if msa_mask[s, i] != 0]
            mean.append(sum(present) / len(present) if present else torch.zeros_like(m[0, i]))
        m = m - torch.stack(mean)
    a, b = linear(layer.linear_1, m), linear(layer.linear_2, m)
    weight = layer.linear_out.weight.reshape(-1, a.shape[-1], b.shape[-1])
    rows = []
    for i in range(N_res):
        row = []
        for j in range(N_res):
            shared = [s for s in range(N_seq) if msa_mask[s, i] != 0 and msa_mask[s, j] != 0]
            o = layer.linear_out.bias
            for s in shared:
                o = o + sum(
                    weight[:, c, d] * a[s, i, c] * b[s, j, d] for c in range(len(a[0, 0])) for d in range(len(b[0, 0]))
                )
            row.append(o / (layer.eps + len(shared)))
        rows.append(row)
    return stacked(rows)


def algorithm_11(layer: TriangleMultiplication, z: Tensor, pair_mask: Tensor | None = None) -> Tensor:
    """Triangular multiplicative update using outgoing edges."""
    return triangle_update(layer, z, pair_mask, lambda a, b, i, j, k: a[i, k] * b[j, k])


def algorithm_12(layer: TriangleMultiplication, z: Tensor, pair_mask: Tensor | None = None) -> Tensor:
    """Triangular multiplicative update using incoming edges."""
    return triangle_update(layer, z, pair_mask, lambda a, b, i, j, k: a[k, i] * b[k, j])


def triangle_update(
    layer: TriangleMultiplication,
    z: Tensor,
    pair_mask: Tensor | None,
    product: Callable[[Tensor, Tensor, int, int, int], Tensor],
) -> Tensor:
    N_res = len(z)
    pair_mask = torch.ones(N_res, N_res) if pair_mask is None else pair_mask
    z = layer_norm(layer.layer_norm_in, z)
    a = pair_mask[..., None] * sigmoid(linear(layer.linear_a_g, z)) * linear(layer.linear_a_p, z)
    b = pair_mask[..., None] * sigmoid(linear(layer.linear_b_g, z)) * linear(layer.linear_b_p, z)
    g = sigmoid(linear(layer.linear_g, z))
    rows = []
    for i in range(N_res):
        row = []
        for j in range(N_res):
            x = sum(product(a, b, i, j, k) for k in range(N_res))
            row.append(g[i, j] * linear(layer.linear_z, layer_norm(layer.layer_norm_out, x)))
        rows.append(row)
    return stacked(rows)


def algorithm_13(layer: TriangleAttention, z: Tensor, pair_mask: Tensor | None = None) -> Tensor:
    """Triangular gated self-attention around the starting node: i j attends to i k, biased by j k."""
    z = layer_norm(layer.layer_norm, z)
    bias = linear(layer.linear, z).permute(2, 0, 1)
    rows = [attention(layer.mha, z[i], bias, None if pair_mask is None else pair_mask[i]) for i in range(len(z))]
    return torch.stack(rows)


def algorithm_14(layer: TriangleAttention, z: Tensor, pair_mask: Tensor | None = None) -> Tensor:
    """Triangular gated self-attention around the ending node: i j attends to k j, biased by k i."""
    z = layer_norm(layer.layer_norm, z)
    b = linear(layer.linear, z)
    mha, N_res = layer.mha, len(z)
    q, k, v = (heads(linear(part, z), mha.N_head) for part in (mha.linear_q, mha.linear_k, mha.linear_v))
    g = sigmoid(linear(mha.linear_g, z))
    rows = []
    for i in range(N_res):
        row = []
        for j in range(N_res):
            mask = None if pair_mask is None else pair_mask[:, j]
            o = [attend(q[i, j, h], k[:, j, h], v[:, j, h], b[:, i, h], mask) for h in range(mha.N_head)]
            row.append(linear(mha.linear_o, g[i, j] * torch.cat(o)))
        rows.append(row)
    return stacked(rows)


def algorithm_19(layer: MSAColumnGlobalAttention, m: Tensor, msa_mask: Tensor | None = None) -> Tensor:
    """MSA global column-wise gated self-attention."""
    m = layer_norm(layer.layer_norm_m, m)
    columns = [
        global_attention(layer.global_attention, m[:, i], None, None if msa_mask is None else msa_mask[:, i])
        for i in range(m.shape[1])
    ]
    return torch.stack(columns, 1)


def pair_stack(stack: PairStack, z: Tensor, pair_mask: Tensor | None = None) -> Tensor:
    """Algorithm 6, lines 6 to 10, without dropout."""
    z = z + algorithm_11(stack.tri_mul_out, z, pair_mask)
    z = z + algorithm_12(stack.tri_mul_in, z, pair_mask)
    if hasattr(stack, "tri_att_start"):
        z = z + algorithm_13(stack.tri_att_start, z, pair_mask)
        z = z + algorithm_14(stack.tri_att_end, z, pair_mask)
    return z + transition(stack.pair_transition, z)


def evoformer_block(
    block: EvoformerBlock, m: Tensor, z: Tensor, msa_mask: Tensor | None = None, pair_mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Algorithm 6, lines 2 to 10, and the same lines of Algorithm 18, without dropout."""
    if block.opm_first:  # as in AlphaFold-Multimer
        z = z + algorithm_10(block.outer_product_mean, m, msa_mask)
    m = m + algorithm_7(block.msa_att_row, m, z, msa_mask)
    full = isinstance(block.msa_att_col, MSAColumnAttention)
    m = m + (algorithm_8 if full else algorithm_19)(block.msa_att_col, m, msa_mask)
    m = m + transition(block.msa_transition, m)
    if not block.opm_first:
        z = z + algorithm_10(block.outer_product_mean, m, msa_mask)
    return m, pair_stack(block.pair_stack, z, pair_mask)


def algorithm_6(
    stack: EvoformerStack, m: Tensor, z: Tensor, msa_mask: Tensor | None = None, pair_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Evoformer stack, without dropout."""
    for block in stack.blocks:
        m, z = evoformer_block(block, m, z, msa_mask, pair_mask)
    return m, z, linear(stack.linear, m[0])


def algorithm_18(
    stack: ExtraMSAStack, e: Tensor, z: Tensor, extra_msa_mask: Tensor | None = None, pair_mask: Tensor | None = None
) -> Tensor:
    """Extra MSA stack, without dropout."""
    for block in stack.blocks:
        e, z = evoformer_block(block, e, z, extra_msa_mask, pair_mask)
    return z
