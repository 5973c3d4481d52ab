"""DeepMind's names of the trunk's weights: to ours and back.

AlphaFold's files name an array `scope//name`. The blocks of a stack share one array with a leading block axis; a Linear
is [in, out], and attention keeps its heads apart: [in, head, channel].
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from evoformer.weights.names import Array, Found, WeightsError, add, listed


class Row(NamedTuple):
    """A line of the table.

    Attributes:
        theirs: `scope//name`, counted from the block or from `alphafold/alphafold_iteration/`.
        ours: our name; where AlphaFold keeps two tensors side by side in one array, both names in their order.
        pattern: how the axes of one block's array become ours, in einops' words; h are heads.
    """

    theirs: str
    ours: tuple[str, ...]
    pattern: str


def _norm(theirs: str, ours: str) -> list[Row]:
    return [
        Row(f"{theirs}//scale", (f"{ours}.weight",), "c -> c"),
        Row(f"{theirs}//offset", (f"{ours}.bias",), "c -> c"),
    ]


def _linear(theirs: str, *ours: str) -> list[Row]:
    return [
        Row(f"{theirs}//weights", tuple(f"{name}.weight" for name in ours), "i o -> o i"),
        Row(f"{theirs}//bias", tuple(f"{name}.bias" for name in ours), "o -> o"),
    ]


def _attention(theirs: str, ours: str, key_value: str = "i h c -> (h c) i") -> list[Row]:
    return [
        Row(f"{theirs}//query_w", (f"{ours}.linear_q.weight",), "i h c -> (h c) i"),
        Row(f"{theirs}//key_w", (f"{ours}.linear_k.weight",), key_value),
        Row(f"{theirs}//value_w", (f"{ours}.linear_v.weight",), key_value),
        Row(f"{theirs}//gating_w", (f"{ours}.linear_g.weight",), "i h c -> (h c) i"),
        Row(f"{theirs}//gating_b", (f"{ours}.linear_g.bias",), "h c -> (h c)"),
        Row(f"{theirs}//output_w", (f"{ours}.linear_o.weight",), "h c o -> o (h c)"),
        Row(f"{theirs}//output_b", (f"{ours}.linear_o.bias",), "o -> o"),
    ]


def _global_attention(theirs: str, ours: str) -> list[Row]:
    return _attention(theirs, ours, key_value="i c -> c i")  # one key and one value for all heads


def _transition(theirs: str, ours: str) -> list[Row]:
    return [
        *_norm(f"{theirs}/input_layer_norm", f"{ours}.layer_norm"),
        *_linear(f"{theirs}/transition1", f"{ours}.linear_1"),
        *_linear(f"{theirs}/transition2", f"{ours}.linear_2"),
    ]


def _triangle_multiplication(theirs: str, ours: str, left: str, right: str) -> list[Row]:
    return [
        *_norm(f"{theirs}/layer_norm_input", f"{ours}.layer_norm_in"),
        *_linear(f"{theirs}/left_projection", f"{ours}.linear_{left}_p"),
        *_linear(f"{theirs}/right_projection", f"{ours}.linear_{right}_p"),
        *_linear(f"{theirs}/left_gate", f"{ours}.linear_{left}_g"),
        *_linear(f"{theirs}/right_gate", f"{ours}.linear_{right}_g"),
        *_norm(f"{theirs}/center_layer_norm", f"{ours}.layer_norm_out"),
        *_linear(f"{theirs}/output_projection", f"{ours}.linear_z"),
        *_linear(f"{theirs}/gating_linear", f"{ours}.linear_g"),
    ]


def _fused_triangle_multiplication(theirs: str, ours: str, left: str, right: str) -> list[Row]:
    return [
        *_norm(f"{theirs}/left_norm_input", f"{ours}.layer_norm_in"),
        *_linear(f"{theirs}/projection", f"{ours}.linear_{left}_p", f"{ours}.linear_{right}_p"),
        *_linear(f"{theirs}/gate", f"{ours}.linear_{left}_g", f"{ours}.linear_{right}_g"),
        *_norm(f"{theirs}/center_norm", f"{ours}.layer_norm_out"),
        *_linear(f"{theirs}/output_projection", f"{ours}.linear_z"),
        *_linear(f"{theirs}/gating_linear", f"{ours}.linear_g"),
    ]


def _triangle_attention(theirs: str, ours: str) -> list[Row]:
    return [
        *_norm(f"{theirs}/query_norm", f"{ours}.layer_norm"),
        Row(f"{theirs}//feat_2d_weights", (f"{ours}.linear.weight",), "i o -> o i"),
        *_attention(f"{theirs}/attention", f"{ours}.mha"),
    ]


ROW_ATTENTION = [
    *_norm("msa_row_attention_with_pair_bias/query_norm", "msa_att_row.layer_norm_m"),
    *_norm("msa_row_attention_with_pair_bias/feat_2d_norm", "msa_att_row.layer_norm_z"),
    Row("msa_row_attention_with_pair_bias//feat_2d_weights", ("msa_att_row.linear_z.weight",), "i o -> o i"),
    *_attention("msa_row_attention_with_pair_bias/attention", "msa_att_row.mha"),
]
COLUMN_ATTENTION = [
    *_norm("msa_column_attention/query_norm", "msa_att_col.layer_norm_m"),
    *_attention("msa_column_attention/attention", "msa_att_col.mha"),
]
COLUMN_GLOBAL_ATTENTION = [
    *_norm("msa_column_global_attention/query_norm", "msa_att_col.layer_norm_m"),
    *_global_attention("msa_column_global_attention/attention", "msa_att_col.global_attention"),
]
OUTER_PRODUCT_MEAN = [
    *_norm("outer_product_mean/layer_norm_input", "outer_product_mean.layer_norm"),
    *_linear("outer_product_mean/left_projection", "outer_product_mean.linear_1"),
    *_linear("outer_product_mean/right_projection", "outer_product_mean.linear_2"),
    Row("outer_product_mean//output_w", ("outer_product_mean.linear_out.weight",), "left right o -> o (left right)"),
    Row("outer_product_mean//output_b", ("outer_product_mean.linear_out.bias",), "o -> o"),
]
# DISCREPANCY: against Algorithm 12, DeepMind's code sums left[k, j] right[k, i] over incoming edges: left is our b.
TRIANGLE_MULTIPLICATION = [
    *_triangle_multiplication("triangle_multiplication_outgoing", "pair_stack.tri_mul_out", left="a", right="b"),
    *_triangle_multiplication("triangle_multiplication_incoming", "pair_stack.tri_mul_in", left="b", right="a"),
]
FUSED_TRIANGLE_MULTIPLICATION = [
    *_fused_triangle_multiplication("triangle_multiplication_outgoing", "pair_stack.tri_mul_out", left="a", right="b"),
    *_fused_triangle_multiplication("triangle_multiplication_incoming", "pair_stack.tri_mul_in", left="b", right="a"),
]
OTHER_LAYERS = [
    *_transition("msa_transition", "msa_transition"),
    *_triangle_attention("triangle_attention_starting_node", "pair_stack.tri_att_start"),
    *_triangle_attention("triangle_attention_ending_node", "pair_stack.tri_att_end"),
    *_transition("pair_transition", "pair_stack.pair_transition"),
]
MODEL = [
    *_linear("evoformer/preprocess_1d", "input_embedder.linear_tf_m"),
    *_linear("evoformer/preprocess_msa", "input_embedder.linear_msa_m"),
    *_linear("evoformer/left_single", "input_embedder.linear_tf_z_i"),
    *_linear("evoformer/right_single", "input_embedder.linear_tf_z_j"),
    *_linear("evoformer/pair_activiations", "input_embedder.linear_relpos"),  # AlphaFold's spelling
    *_linear("evoformer/prev_pos_linear", "recycling_embedder.linear"),
    *_norm("evoformer/prev_msa_first_row_norm", "recycling_embedder.layer_norm_m"),
    *_norm("evoformer/prev_pair_norm", "recycling_embedder.layer_norm_z"),
    *_linear("evoformer/extra_msa_activations", "extra_msa_embedder.linear"),
    *_linear("evoformer/single_activations", "evoformer.linear"),
    *_linear("masked_msa_head/logits", "aux_heads.masked_msa.linear"),
    *_linear("distogram_head/half_logits", "aux_heads.distogram.linear"),
    *_linear("experimentally_resolved_head/logits", "aux_heads.experimentally_resolved.linear"),
    *_linear("predicted_aligned_error_head/logits", "aux_heads.tm.linear"),
    *_norm("predicted_lddt_head/input_layer_norm", "aux_heads.plddt.layer_norm"),
    *_linear("predicted_lddt_head/act_0", "aux_heads.plddt.linear_1"),
    *_linear("predicted_lddt_head/act_1", "aux_heads.plddt.linear_2"),
    *_linear("predicted_lddt_head/logits", "aux_heads.plddt.linear_3"),
]
MULTIMER_MODEL = _linear("evoformer/~_relative_encoding/position_activations", "input_embedder.linear_relpos")

ROOT = "alphafold/alphafold_iteration/"
STACKS = {"evoformer_iteration": "evoformer.blocks", "extra_msa_stack": "extra_msa_stack.blocks"}


def block_rows(*, fused: bool, global_column: bool) -> list[Row]:
    """The table of one block.

    Args:
        fused: whether left and right of a triangle multiplication share an array, as in AlphaFold-Multimer v3.
        global_column: whether column attention is global, as in the extra-MSA stack.
    """
    return [
        *ROW_ATTENTION,
        *(COLUMN_GLOBAL_ATTENTION if global_column else COLUMN_ATTENTION),
        *OUTER_PRODUCT_MEAN,
        *(FUSED_TRIANGLE_MULTIPLICATION if fused else TRIANGLE_MULTIPLICATION),
        *OTHER_LAYERS,
    ]


# Reading takes any of the forms: their names do not collide.
_IN_BLOCK = {
    row.theirs: row
    for fused, global_column in ((False, False), (True, True))
    for row in block_rows(fused=fused, global_column=global_column)
}
_IN_MODEL = {row.theirs.removeprefix("evoformer/"): row for row in [*MODEL, *MULTIMER_MODEL]}
_ATTENTION_ALONE = _attention("attention", "mha")
_GLOBAL_ATTENTION_ALONE = _global_attention("attention", "mha")


def is_fused(names: Mapping[str, Array]) -> bool:
    """Whether triangle multiplications are in the fused form."""
    return any("triangle_multiplication" in name and "/projection//" in name for name in names)


def to_ours(arrays: Mapping[str, Array]) -> dict[str, Found]:
    """AlphaFold's arrays under our names, block by block; names of other parts of the model are left out.

    The arrays may be those of a whole model, of one block or of one layer; what comes before `evoformer_iteration/`
    may be left out, and so may the leading block axis, of a single block.

    Raises:
        WeightsError: an array has another number of axes than it should.
    """
    found: dict[str, Found] = {}
    alone = _attention_alone(arrays)
    for name, array in arrays.items():
        short = name
        for prefix in ("param/", "alphafold/", "alphafold_iteration/", "evoformer/"):
            short = short.removeprefix(prefix)
        stack, _, rest = short.partition("/")
        if stack in STACKS and rest in _IN_BLOCK:
            row = _IN_BLOCK[rest]
            for i, block in enumerate(_blocks(array, row, name)):
                _add_row(found, f"{STACKS[stack]}.{i}.", row, block, name)
        elif row_alone := _IN_MODEL.get(short) or _IN_BLOCK.get(short) or alone.get(short):
            _check_axes(array, row_alone, name)
            _add_row(found, "", row_alone, array, name)
    return found


def _attention_alone(arrays: Mapping[str, Array]) -> dict[str, Row]:
    """The table of a source that is one attention; global attention shows in its keys, which have no heads."""
    key = arrays.get("attention//key_w", arrays.get("param/attention//key_w"))
    rows = _GLOBAL_ATTENTION_ALONE if key is not None and key.ndim == 2 else _ATTENTION_ALONE
    return {row.theirs: row for row in rows}


def _blocks(array: Array, row: Row, name: str) -> list[Array]:
    """Views of the blocks in a stacked array; an array without a block axis is one block."""
    n_axes = len(row.pattern.split(" -> ")[0].split())
    if array.ndim == n_axes:
        return [array]
    if array.ndim == n_axes + 1:
        return [array[i] for i in range(array.shape[0])]
    shape = tuple(array.shape)
    raise WeightsError(f"{name} has shape {shape}, expected {n_axes} axes for one block, {n_axes + 1} for a stack")


def _check_axes(array: Array, row: Row, name: str) -> None:
    n_axes = len(row.pattern.split(" -> ")[0].split())
    if array.ndim != n_axes:
        raise WeightsError(f"{name} has shape {tuple(array.shape)}, expected {n_axes} axes")


def _add_row(found: dict[str, Found], prefix: str, row: Row, array: Array, source: str) -> None:
    """Add one block's array, split into the tensors that stand side by side in it."""
    axes = row.pattern.split(" -> ")[0].split()
    heads = array.shape[axes.index("h")] if "h" in axes else None
    if array.shape[-1] % len(row.ours):
        raise WeightsError(f"{source} has {array.shape[-1]} channels, which do not halve into left and right")
    width = array.shape[-1] // len(row.ours)
    for k, ours in enumerate(row.ours):
        part = array[..., k * width : (k + 1) * width] if len(row.ours) > 1 else array
        add(found, prefix + ours, Found(rearrange(part, row.pattern), source, heads))


def heads_in(named: Mapping[str, Array]) -> dict[str, int]:
    """The number of heads of each attention in a block, as far as shapes tell it, by our names of the attentions."""
    heads = {}
    for name, array in named.items():
        if name.endswith("msa_att_row.linear_z.weight"):
            block = name.removesuffix("msa_att_row.linear_z.weight")
            # The two attentions of the MSA have as many heads; column attention alone does not say how many.
            heads[f"{block}msa_att_row.mha"] = heads[f"{block}msa_att_col.mha"] = array.shape[0]
        elif re.search(r"tri_att_(start|end)\.linear\.weight$", name):
            heads[name.removesuffix("linear.weight") + "mha"] = array.shape[0]
        elif name.endswith("global_attention.linear_q.weight"):
            attention = name.removesuffix(".linear_q.weight")
            heads[attention] = array.shape[0] // named[f"{attention}.linear_k.weight"].shape[0]
    return heads


def known(name: str) -> bool:
    """Whether AlphaFold has a tensor of our name."""
    return re.sub(r"^(evoformer|extra_msa_stack)\.blocks\.\d+\.", "", name) in _OURS


_OURS = {ours for row in [*_IN_BLOCK.values(), *MODEL, *_ATTENTION_ALONE] for ours in row.ours}


def from_ours(named: Mapping[str, Array], heads: Mapping[str, int], *, fused: bool) -> dict[str, np.ndarray]:
    """Our tensors under AlphaFold's names; the blocks of a stack become one array.

    Names that begin at a block or at a layer keep doing so: `msa_transition.…` becomes `msa_transition/…`.

    Args:
        named: tensors by our names.
        heads: the number of heads of each attention, by its name.
        fused: whether to write triangle multiplications in the fused form of AlphaFold-Multimer v3.

    Raises:
        WeightsError: AlphaFold has no tensor of some name, or tensors are missing, all of them listed.
    """
    unknown = [name for name in named if not known(name)]
    if unknown:
        raise WeightsError(f"AlphaFold has no name for {listed(unknown)}")
    stacks: dict[str, set[int]] = defaultdict(set)
    for name in named:
        if match := re.match(r"(.*\.blocks)\.(\d+)\.", name):
            stacks[match[1]].add(int(match[2]))

    arrays: dict[str, np.ndarray] = {}
    missing: list[str] = []

    def write(row: Row, name: str, prefixes: list[str], stacked: bool) -> None:
        """Write a row of the table, unless no block has it."""
        wanted = [prefix + ours for prefix in prefixes for ours in row.ours]
        absent = [ours for ours in wanted if ours not in named]
        if len(absent) == len(wanted):
            return
        missing.extend(absent)
        if not missing:
            blocks = [_row_from_ours(row, prefix, named, heads) for prefix in prefixes]
            arrays[name] = np.stack(blocks) if stacked else blocks[0]

    for theirs, ours in STACKS.items():
        if ours in stacks:
            prefixes = [f"{ours}.{i}." for i in range(max(stacks[ours]) + 1)]
            global_column = any(f"{prefix}msa_att_col.global_attention.linear_q.weight" in named for prefix in prefixes)
            for row in block_rows(fused=fused, global_column=global_column):
                write(row, f"{ROOT}evoformer/{theirs}/{row.theirs}", prefixes, stacked=True)
    for row in MODEL:
        write(row, ROOT + row.theirs, [""], stacked=False)
    global_column = "msa_att_col.global_attention.linear_q.weight" in named
    for row in block_rows(fused=fused, global_column=global_column):
        write(row, row.theirs, [""], stacked=False)
    for row in _attention_rows_alone(named):
        write(row, row.theirs, [""], stacked=False)
    if missing:
        raise WeightsError(f"missing for AlphaFold's layout: {listed(missing)}")
    return arrays


def _attention_rows_alone(named: Mapping[str, Array]) -> list[Row]:
    """The table of one attention by itself, global where its keys have one head and its queries several."""
    q, k = named.get("mha.linear_q.weight"), named.get("mha.linear_k.weight")
    is_global = q is not None and k is not None and q.shape[0] != k.shape[0]
    return _GLOBAL_ATTENTION_ALONE if is_global else _ATTENTION_ALONE


def _row_from_ours(row: Row, prefix: str, named: Mapping[str, Array], heads: Mapping[str, int]) -> np.ndarray:
    """One block's array of a row of the table."""
    left, right = row.pattern.split(" -> ")
    parts = []
    for ours in row.ours:
        array = _numpy(named[prefix + ours])
        sizes = {}
        if "h" in left.split():
            sizes["h"] = _heads((prefix + ours).rsplit(".", 2)[0], heads)
        elif "left" in left.split():
            sizes["left"] = math.isqrt(array.shape[1])
        parts.append(rearrange(array, f"{right} -> {left}", **sizes))
    return np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]


def _heads(attention: str, heads: Mapping[str, int]) -> int:
    if attention not in heads:
        raise WeightsError(f"the number of heads of {attention} is not known: convert its whole block")
    return heads[attention]


def _numpy(array: Array) -> np.ndarray:
    if isinstance(array, Tensor):
        # numpy has no bfloat16; float32 holds each of its numbers.
        array = array.detach().cpu()
        return (array.float() if array.dtype == torch.bfloat16 else array).numpy()
    return array
