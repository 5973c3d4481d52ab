"""Which layout a source has, and the way from any layout to our names and back."""

from collections.abc import Mapping

from evoformer.weights import alphafold, decoded, openfold
from evoformer.weights.names import Array, Found, Layout


def recognise(arrays: Mapping[str, Array]) -> Layout:
    """The layout that the names in a source show; our own names are OpenFold's."""
    if any("//" in name for name in arrays):
        return "alphafold_fused" if alphafold.is_fused(arrays) else "alphafold"
    return "decoded" if decoded.is_decoded(arrays) or _has_break(arrays) else "openfold"


def is_multimer(arrays: Mapping[str, Array]) -> bool:
    """Whether the names are those of a multimer model, whose blocks take the outer product mean first."""
    return any("~_relative_encoding" in name or ".linear_ab_" in name for name in arrays)


def to_ours(arrays: Mapping[str, Array], layout: Layout) -> dict[str, Found]:
    """The tensors of a source under our names.

    Raises:
        WeightsError: an array has another number of axes than it should, or two names are the same tensor of ours.
    """
    if layout in ("alphafold", "alphafold_fused"):
        return alphafold.to_ours(arrays)
    return decoded.to_ours(arrays) if layout == "decoded" else openfold.to_ours(arrays)


def from_ours(named: Mapping[str, Array], heads: Mapping[str, int], layout: Layout) -> Mapping[str, Array]:
    """Our tensors under the names of a layout.

    Args:
        named: tensors by our names.
        heads: the number of heads of each attention, by its name; only AlphaFold's layouts ask.
        layout: whose names.

    Raises:
        WeightsError: the layout has no name for a tensor, or tensors are missing.
    """
    if layout in ("alphafold", "alphafold_fused"):
        return alphafold.from_ours(named, heads, fused=layout == "alphafold_fused")
    return decoded.from_ours(named) if layout == "decoded" else openfold.from_ours(named)


def _has_break(arrays: Mapping[str, Array]) -> bool:
    return any(name.startswith(decoded.HAS_BREAK) for name in arrays)
