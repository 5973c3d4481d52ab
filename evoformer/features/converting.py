"""An alignment from one format to another, and what there is to say about one."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from evoformer.constants import GAP, UNKNOWN
from evoformer.features.alignment import Alignment, AlignmentWarning
from evoformer.features.reading import read_alignment


def convert_alignment(source: str | Path, out: str | Path, *, out_format: str | None = None, **reading: Any) -> str:
    """Read an alignment and write it; see `Alignment.write` for what is lost.

    Args:
        source: what `read_alignment` reads, except text
        out: the file to write
        out_format: its format; None goes by the suffix
        reading: options of `read_alignment`

    Returns:
        what was written, in words.

    Raises:
        AlignmentError: one of the files cannot be read or written.
    """
    alignment = read_alignment(Path(source), **reading)
    alignment.write(out, out_format)
    return f"wrote {alignment.N_seq:,} rows of {alignment.N_res:,} columns to {out}"


def inspect_alignment(source: str | Path, **reading: Any) -> str:
    """Rows, columns, Neff, gaps, insertions, chains and oddities of an alignment, in lines of text.

    Args:
        source: what `read_alignment` reads, except text
        reading: options of `read_alignment`

    Raises:
        AlignmentError: the file cannot be read.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AlignmentWarning)
        alignment = read_alignment(Path(source), **reading)
    where = f"{source}: "
    oddities = [str(warning.message).removeprefix(where) for warning in caught] + _oddities(alignment)
    gaps = alignment.msa == GAP
    _, _, inserted = alignment.sparse_deletions
    lines = [
        ("file", str(source)),
        ("format", alignment.metadata["format"]),
        ("query", alignment.ids[0]),
        ("rows", f"{alignment.N_seq:,}"),
        ("columns", f"{alignment.N_res:,}"),
        ("Neff", f"{alignment.neff():,.1f} (rows of 80% equal columns share a weight of 1)"),
        ("gaps", f"{gaps.mean():.1%} of the cells, {gaps.mean(axis=1).max():.1%} of the worst row's"),
        ("insertions", f"{int(inserted.sum()):,} residues at {len(inserted):,} places"),
    ]
    if "chain_lengths" in alignment.metadata:
        chains = zip(alignment.metadata["chain_lengths"], alignment.metadata["copies"], strict=True)
        paired = int(alignment.metadata["row_coverage"].all(axis=1).sum())
        described = ", ".join(f"{length} residues (x{copies})" for length, copies in chains)
        lines.append(("chains", f"{described}; {paired:,} rows cover all"))
    lines += [("oddity", oddity) for oddity in oddities] or [("oddities", "none")]
    return "\n".join(f"{name:<11}{value}" for name, value in lines)


def _oddities(alignment: Alignment) -> list[str]:
    """What is allowed in an alignment, but often not meant."""
    found = {
        "rows equal to an earlier one": alignment.N_seq - alignment.deduplicate().N_seq,
        "ids that repeat an earlier one": alignment.N_seq - len(set(alignment.ids)),
        "rows of gaps only": int((alignment.msa == GAP).all(axis=1).sum()),
        "columns without a residue but the query's": _columns_of_the_query_alone(alignment),
        "unknown residues (X) in the query": int(np.count_nonzero(alignment.msa[0] == UNKNOWN)),
    }
    return [f"{what}: {count:,}" for what, count in found.items() if count]


def _columns_of_the_query_alone(alignment: Alignment) -> int:
    others = alignment.msa[1:]
    return int((others == GAP).all(axis=0).sum()) if len(others) else 0
