"""Which rows of an alignment are used: duplicates, empty rows, block deletion, and the order they are drawn in."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, Integer

from evoformer.constants import GAP
from evoformer.features.alignment import Alignment


class CleanRows(NamedTuple):
    """An alignment whose rows all say something of their own, and how many were left out for that."""

    alignment: Alignment
    N_duplicate: int
    N_empty: int


def clean_rows(alignment: Alignment) -> CleanRows:
    """Drop rows of nothing but gaps, and rows equal to an earlier one, which keeps its own deletions; never the query.

    `MSAFeaturizer` does the same, in two steps; here it can be seen what they take.

    Returns:
        the alignment left, and how many duplicate and empty rows are gone from it.
    """
    unique = alignment.deduplicate()
    filled = filled_rows(unique.msa)
    N_empty = unique.N_seq - len(filled)
    return CleanRows(unique[filled] if N_empty else unique, alignment.N_seq - unique.N_seq, N_empty)


def filled_rows(msa: Integer[np.ndarray, "N_seq N_res"]) -> Int64[np.ndarray, "N_kept"]:
    """The rows that have anything but gaps, in ascending order, the query's always among them."""
    filled = (msa != GAP).any(axis=1)
    filled[0] = True
    return np.flatnonzero(filled)


def rows_after_block_deletion(
    N_seq: int, N_block: int, fraction: float, generator: np.random.Generator
) -> Int64[np.ndarray, "N_kept"]:
    """Rows left when blocks of neighbours are deleted: whole branches of a family, where similar rows stand together.

    AlphaFold 2 supplement, Algorithm 1: every block has floor(fraction N_seq) rows and starts anywhere behind the
    query; blocks may overlap and reach past the end. AlphaFold trains with 5 blocks of 0.3.

    Returns:
        row numbers in ascending order, the query's first.
    """
    if N_seq == 1:
        return np.zeros(1, np.int64)
    kept = np.ones(N_seq, np.bool_)
    size = int(fraction * N_seq)
    for start in generator.integers(1, N_seq, N_block):
        kept[start : start + size] = False
    return np.flatnonzero(kept)


def random_row_order(N_seq: int, generator: np.random.Generator) -> Int64[np.ndarray, "N_seq"]:
    """Row numbers, the query's first and the others in random order."""
    return np.concatenate([np.zeros(1, np.int64), generator.permutation(N_seq - 1) + 1])
