"""Where in a whole model a module stands, and where in a source its tensors are."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from torch import nn

from evoformer.blocks.evoformer import EvoformerBlock, EvoformerStack
from evoformer.blocks.extra_msa import ExtraMSABlock, ExtraMSAStack
from evoformer.blocks.pair import PairStack
from evoformer.heads import DistogramHead, MaskedMSAHead
from evoformer.layers.attention import MultiHeadAttention
from evoformer.layers.embedders import InputEmbedder, ProfileEmbedder
from evoformer.layers.msa_attention import MSAColumnAttention, MSAColumnGlobalAttention, MSARowAttentionWithPairBias
from evoformer.layers.outer_product_mean import OuterProductMean
from evoformer.layers.transition import MSATransition, PairTransition
from evoformer.layers.triangle_attention import TriangleAttention
from evoformer.layers.triangle_multiplication import TriangleMultiplication
from evoformer.weights.names import Found, WeightsError, listed

# A module's place in the model; there is one of it.
IN_MODEL: dict[type[nn.Module], str] = {
    EvoformerStack: "evoformer",
    ExtraMSAStack: "extra_msa_stack",
    InputEmbedder: "input_embedder",
    ProfileEmbedder: "input_embedder",
    MaskedMSAHead: "aux_heads.masked_msa",
    DistogramHead: "aux_heads.distogram",
}
# A layer's place in a block.
IN_BLOCK: dict[type[nn.Module], str] = {
    MSARowAttentionWithPairBias: "msa_att_row",
    MSAColumnAttention: "msa_att_col",
    MSAColumnGlobalAttention: "msa_att_col",
    MSATransition: "msa_transition",
    OuterProductMean: "outer_product_mean",
    PairStack: "pair_stack",
    PairTransition: "pair_stack.pair_transition",
}
TRIANGLE = {
    "outgoing": "pair_stack.tri_mul_out",
    "incoming": "pair_stack.tri_mul_in",
    "starting_node": "pair_stack.tri_att_start",
    "ending_node": "pair_stack.tri_att_end",
}
# An attention may be that of several layers; by itself it is called "mha".
ATTENTIONS = ["msa_att_row.mha", "msa_att_col.mha", "pair_stack.tri_att_start.mha", "pair_stack.tri_att_end.mha", "mha"]
GLOBAL_ATTENTIONS = ["msa_att_col.global_attention", "mha"]

MAIN, EXTRA = "evoformer", "extra_msa_stack"


def place_in_model(module: nn.Module) -> str:
    """The module's place in a whole model, or "" where it is none of its parts."""
    return next((place for kind, place in IN_MODEL.items() if isinstance(module, kind)), "")


def places_in_block(module: nn.Module) -> list[str]:
    """The places where a block has such a layer; "" is the block itself, and none is no part of a block."""
    if isinstance(module, EvoformerBlock):
        return [""]
    if isinstance(module, TriangleMultiplication):
        return [TRIANGLE[module.mult_type]]
    if isinstance(module, TriangleAttention):
        return [TRIANGLE[module.node_type]]
    if isinstance(module, MultiHeadAttention):
        return GLOBAL_ATTENTIONS if module.is_global else ATTENTIONS
    return [place for kind, place in IN_BLOCK.items() if isinstance(module, kind)]


class Place(NamedTuple):
    """Where in a source the tensors of a module may be.

    Attributes:
        prefix: what stands before the module's own names; it ends in a dot unless it is empty.
        stack: "evoformer", "extra_msa_stack", or "" outside the stacks of a whole model.
        block: the block's number.
        layer: the layer's place in the block.
    """

    prefix: str
    stack: str = ""
    block: int | None = None
    layer: str = ""


def find(
    module: nn.Module, shapes: Mapping[str, tuple[int, ...]], found: Mapping[str, Found], block: int | str | None
) -> tuple[Place, str]:
    """Where in a source the tensors of a module are, and the same in words.

    Of several places the one counts where most tensors are of the module's shape; then the main stack comes before the
    extra-MSA stack, unless the module is of the latter's kind.

    Args:
        module: the module.
        shapes: shapes of its tensors by its own names.
        found: the source, by our names.
        block: which block, where the source has several: a number, or with its stack "extra_msa_stack.blocks.1".

    Raises:
        WeightsError: there is no such place, or more than one.
    """
    name = type(module).__name__
    layers = places_in_block(module)
    if block is not None and not layers:
        raise WeightsError(f"block={block!r} is for one block or one layer, and {name} is neither: leave block out")
    blocks = _blocks(found)
    present = [p for p in _candidates(module, layers, blocks) if any(p.prefix + own in found for own in shapes)]
    if not present:
        raise WeightsError(f"the source holds no weights for {name}; it holds {_content(found, blocks)}")
    if block is not None:
        present = [place for place in present if _is_block(place, block)]
        if not present:
            raise WeightsError(f"there is no block {block!r} for {name}; the source holds {_content(found, blocks)}")

    def fitting(place: Place) -> int:
        return sum(
            place.prefix + own in found and tuple(found[place.prefix + own].array.shape) == shape
            for own, shape in shapes.items()
        )

    most = max(fitting(place) for place in present)
    best = [place for place in present if fitting(place) == most]
    best = [place for place in best if place.stack == best[0].stack]
    if len({place.layer for place in best}) > 1:
        several = listed(dict.fromkeys(place.layer for place in best))
        raise WeightsError(f"{name} may be any of {several}: load the layer that holds it")
    numbers = [place.block for place in present if place.stack == best[0].stack and place.layer == best[0].layer]
    if len(numbers) > 1:
        where = f"{best[0].stack or 'the source'} has blocks {numbers[0]} to {numbers[-1]}"
        raise WeightsError(f"{where} for {name}: say which one, such as block={numbers[0]}")
    return best[0], _words(best[0], blocks)


def _blocks(found: Mapping[str, Found]) -> dict[str, list[int]]:
    """The numbers of the blocks of each stack in a source; a stack by itself has no name."""
    numbers: dict[str, set[int]] = {}
    for name in found:
        if match := re.match(rf"(?:({MAIN}|{EXTRA})\.)?blocks\.(\d+)\.", name):
            numbers.setdefault(match[1] or "", set()).add(int(match[2]))
    return {stack: sorted(members) for stack, members in numbers.items()}


def _candidates(module: nn.Module, layers: list[str], blocks: Mapping[str, list[int]]) -> list[Place]:
    """All places where the tensors of a module may be, the likelier stack first."""
    if not layers:
        place = place_in_model(module)
        return [Place(f"{place}.", place), Place("")] if place else [Place("")]
    extra_first = isinstance(module, (ExtraMSABlock, MSAColumnGlobalAttention))
    stacks = [EXTRA, MAIN, ""] if extra_first else [MAIN, EXTRA, ""]
    places = []
    for stack in stacks:
        for number in blocks.get(stack, []):
            of_block = f"{stack}.blocks.{number}." if stack else f"blocks.{number}."
            places += [Place(of_block + _dotted(layer), stack, number, layer) for layer in layers]
    places += [Place(_dotted(layer), layer=layer) for layer in layers if layer]
    return [*places, Place("")]


def _dotted(layer: str) -> str:
    return f"{layer}." if layer else ""


def _is_block(place: Place, block: int | str) -> bool:
    return place.block is not None and block in (place.block, f"{place.stack}.blocks.{place.block}")


def _words(place: Place, blocks: Mapping[str, list[int]]) -> str:
    where = place.prefix.removesuffix(".") or "the source"
    n_block = len(blocks.get(place.stack, []))
    if place.block is not None:
        return f"{where}, of {n_block} block" + "s" * (n_block != 1)
    return f"{where}, which has {n_block} block" + "s" * (n_block != 1) if n_block and place.stack else where


def _content(found: Mapping[str, Found], blocks: Mapping[str, list[int]]) -> str:
    """What a source holds, in words."""
    stacks = [
        f"{stack + '.' if stack else ''}blocks.{numbers[0]} to {numbers[-1]}" for stack, numbers in blocks.items()
    ]
    others = dict.fromkeys(name.rpartition(".")[0] or name for name in found if "blocks." not in name)
    return "; ".join([*stacks, *([listed(others)] if others else [])]) or "no part of the trunk"
