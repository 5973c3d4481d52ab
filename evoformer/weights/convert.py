"""A file of weights from one layout to another, without a module."""

from pathlib import Path

from evoformer.weights import alphafold
from evoformer.weights.layouts import from_ours, recognise, to_ours
from evoformer.weights.names import Layout, WeightsError, check_layout, listed
from evoformer.weights.reading import read_weights
from evoformer.weights.writing import write_weights


def convert_weights(source: str | Path, out: str | Path, layout: Layout = "openfold") -> str:
    """Read weights of any layout, and write those of the trunk in another.

    Parts of the model that the tables do not name, such as the structure module, are left out.

    Args:
        source: what `load_weights` reads.
        out: the file to write.
        layout: as in `export_weights`.

    Returns:
        what was written and what was left out, in words.

    Raises:
        WeightsError: the source cannot be read, or holds nothing of the trunk.
        OutputError: the folder cannot be written to.
    """
    check_layout(layout)
    arrays = read_weights(source)
    theirs = recognise(arrays)
    found = {name: item for name, item in to_ours(arrays, theirs).items() if alphafold.known(name)}
    if not found:
        raise WeightsError(f"{source} holds nothing of the trunk; its names are {listed(arrays)}")
    named = {name: item.array for name, item in found.items()}
    heads = alphafold.heads_in(named)
    for name, item in found.items():
        if item.heads is not None and name.endswith(".linear_q.weight"):
            heads[name.removesuffix(".linear_q.weight")] = item.heads
    written = from_ours(named, heads, layout)
    write_weights(written, out, layout)
    used = {item.source for item in found.values()}
    left_out = [name for name in arrays if name not in used]
    lines = [f"{source} (layout {theirs}) -> {out} (layout {layout}): {len(written)} tensors written"]
    return "\n".join([*lines, f"  {len(left_out)} left out: {listed(left_out)}"] if left_out else lines)
