"""Weights of a file or of a dict into a module, and a module's weights to a file."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from evoformer.blocks.evoformer import EvoformerBlock
from evoformer.layers.attention import MultiHeadAttention
from evoformer.weights import decoded
from evoformer.weights.layouts import from_ours, is_multimer, recognise, to_ours
from evoformer.weights.names import Array, Found, Layout, WeightsError, check_layout, listed
from evoformer.weights.openfold import our_name
from evoformer.weights.places import find, place_in_model, places_in_block
from evoformer.weights.reading import read_weights
from evoformer.weights.report import LoadReport
from evoformer.weights.writing import as_tensor, write_weights


def load_weights(
    module: nn.Module, source: str | Path | Mapping[str, Any], *, block: int | str | None = None, strict: bool = True
) -> LoadReport:
    """Load published weights into a trunk, a stack, a block or a layer.

    Read are AlphaFold's .npz files (monomer and multimer, v3's fused projections too), OpenFold's and
    alphafold-decoded's PyTorch files, this library's own checkpoints, and the same names in safetensors or in a dict.
    What a file is shows in its content: its name plays no part, and no code in a pickle is ever run. A layer is found
    by its place in a block, `TriangleMultiplication(c_z, "incoming")` at `pair_stack.tri_mul_in`. The values take the
    module's dtype and device. When it raises, the module is as before.

    Args:
        module: what to load into.
        source: a file, or a dict of names to arrays or tensors.
        block: for one block or one layer, which block of the source. 7 is one of the main stack, or of the extra-MSA
            stack where that one's shapes fit better; "extra_msa_stack.blocks.2" also says which stack.
        strict: whether missing tensors and differing shapes are errors; if not, those tensors stay as they are.

    Returns:
        what was loaded, missing, unused, and all zero.

    Raises:
        WeightsError: the source cannot be read, holds nothing for this module, or does not fit it.
    """
    arrays = read_weights(source)
    layout = recognise(arrays)
    found = to_ours(arrays, layout)
    targets = _by_our_names(module)
    shapes = {name: tuple(tensor.shape) for name, (_, tensor) in targets.items()}
    place, words = find(module, shapes, found, block)
    heads = _heads(module)

    loaded: dict[str, tuple[Tensor, Found]] = {}
    missing, mismatched, misfits = [], [], set()
    for name, (own_name, target) in targets.items():
        item = found.get(place.prefix + name)
        if item is None:
            missing.append(own_name)
        elif difference := _difference(target, item, heads.get(name.removesuffix(".linear_q.weight"))):
            mismatched.append(f"{own_name} ({item.source}) {difference}")
            misfits.add(item.source)
        else:
            loaded[own_name] = target, item
    used = {item.source for _, item in loaded.values()}
    beside = {item.source for name, item in found.items() if name.startswith(place.prefix)}
    # A name that is misspelt stands beside those that are used: such names come first.
    unused = sorted((name for name in arrays if name not in used), key=lambda name: name not in beside)
    if strict and (missing or mismatched):
        unknown = [name for name in unused if name not in misfits]
        raise WeightsError(_misfit(type(module).__name__, words, missing, mismatched, unknown))

    all_zero = []
    with torch.no_grad():
        for own_name, (target, item) in loaded.items():
            target.copy_(as_tensor(item.array))
            if not target.any():
                all_zero.append(own_name)
    notes = _notes(module, arrays)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return LoadReport(type(module).__name__, layout, words, list(loaded), missing, mismatched, unused, all_zero, notes)


def export_weights(module: nn.Module, path: str | Path, layout: Layout = "alphafold") -> None:
    """Write the weights of a trunk, a stack, a block or a layer under the names of another library.

    `load_weights` reads all of it back, bit by bit. A trunk, a stack, an embedder or a head is written under its names
    in a whole model, a block or a layer under the names that it has by itself.

    Args:
        module: what to write.
        path: the file, replaced if it exists; a name in .safetensors makes it one in any layout.
        layout: "alphafold" is an .npz with stacked blocks, "alphafold_fused" the same with the fused triangle
            multiplications of AlphaFold-Multimer v3; "openfold" and "decoded" are PyTorch files with a plain dict.

    Raises:
        WeightsError: the layout is unknown, or has no name for some tensors; all of them are listed.
        OutputError: the folder cannot be written to.
    """
    check_layout(layout)
    layers = places_in_block(module)
    place = layers[-1] if layers else place_in_model(module)
    prefix = f"{place}." if place else ""
    named = {prefix + name: tensor for name, (_, tensor) in _by_our_names(module).items()}
    heads = {(prefix + name).removesuffix("."): number for name, number in _heads(module).items()}
    try:
        arrays: Mapping[str, Array] = from_ours(named, heads, layout)
    except WeightsError as error:
        raise WeightsError(f"{type(module).__name__} cannot be written as {layout}: {error}") from error
    if layers and layout in ("openfold", "decoded"):
        theirs = decoded.their_name(prefix) if layout == "decoded" else prefix
        arrays = {name.removeprefix(theirs): array for name, array in arrays.items()}
    elif isinstance(module, EvoformerBlock):
        scope = "extra_msa_stack" if hasattr(module.msa_att_col, "global_attention") else "evoformer_iteration"
        arrays = {f"{scope}/{name}": array for name, array in arrays.items()}
    write_weights(arrays, path, layout)


def _by_our_names(module: nn.Module) -> dict[str, tuple[str, Tensor]]:
    """The module's tensors by our names, with its own names."""
    return {our_name(name): (name, tensor) for name, tensor in module.state_dict().items()}


def _heads(module: nn.Module) -> dict[str, int]:
    """The number of heads of each attention in a module, by our names."""
    return {
        our_name(f"{name}." if name else "").removesuffix("."): part.N_head
        for name, part in module.named_modules()
        if isinstance(part, MultiHeadAttention)
    }


def _difference(target: Tensor, item: Found, heads: int | None) -> str:
    """How a tensor differs in shape from what the source has, in words; "" if it does not."""
    there, here = tuple(item.array.shape), tuple(target.shape)
    if there != here:
        return f"is {there} in the source, {here} in the module"
    if item.heads is not None and heads is not None and item.heads != heads:
        return f"has {item.heads} heads in the source, {heads} in the module"
    return ""


def _misfit(module: str, place: str, missing: list[str], mismatched: list[str], unused: list[str]) -> str:
    """The one error about all tensors that do not fit."""
    lines = [f"{module} cannot be loaded from {place}:"]
    if missing:
        lines.append(f"  {len(missing)} missing in the source: {listed(missing)}")
    lines += [f"  another shape: {words}" for words in mismatched[:8]]
    if len(mismatched) > 8:
        lines.append(f"  and {len(mismatched) - 8} more of another shape")
    if unused:
        lines.append(f"  {len(unused)} unused in the source: {listed(unused)}")
    return "\n".join(lines)


def _notes(module: nn.Module, arrays: Mapping[str, Array]) -> list[str]:
    """What the names say about how the module must be built."""
    opm_last = any(isinstance(part, EvoformerBlock) and not part.opm_first for part in module.modules())
    if is_multimer(arrays) and opm_last:
        return ["the weights are of a multimer model, which takes the outer product mean first: use opm_first=True"]
    return []
