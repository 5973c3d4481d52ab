"""How alike the rows of an alignment are."""

import numpy as np
from jaxtyping import Float32, Float64, Int64, Integer, UInt8

from evoformer.constants import GAP, N_MSA_LETTERS

ROWS_AT_ONCE = 512  # a block of the comparison of every row with every other


def pairwise_identity(msa: UInt8[np.ndarray, "N_seq N_res"]) -> float:
    """Mean over pairs of rows of the share of equal residues where neither has a gap; NaN without such a pair."""
    N_seq = len(msa)
    one_hot = (msa[:, :, None] == np.arange(GAP)).reshape(N_seq, -1).astype(np.float32)
    present = (msa != GAP).astype(np.float32)
    pair = np.triu_indices(N_seq, 1)
    equal, compared = (one_hot @ one_hot.T)[pair], (present @ present.T)[pair]
    shares = equal[compared > 0] / compared[compared > 0]
    return float(shares.mean()) if len(shares) else float("nan")


def sequence_weights(msa: UInt8[np.ndarray, "N_seq N_res"], *, identity: float = 0.8) -> Float64[np.ndarray, " N_seq"]:
    """One over the number of rows, itself included, that equal a row in at least `identity` of the columns.

    A gap counts as a letter. `msa` holds numbers of `MSA_ALPHABET`.
    """
    N_seq, N_res = msa.shape
    neighbours = np.zeros(N_seq, np.int64)
    blocks = [slice(start, start + ROWS_AT_ONCE) for start in range(0, N_seq, ROWS_AT_ONCE)]
    for i, rows in enumerate(blocks):
        one_hot = _one_hot(msa[rows])
        for others in blocks[i:]:
            equal_columns = one_hot @ _one_hot(msa[others]).T  # whole numbers, exact in float32
            near = equal_columns >= identity * N_res - 1e-6
            neighbours[rows] += near.sum(axis=1)
            if others != rows:
                neighbours[others] += near.sum(axis=0)
    return 1 / neighbours


def identity_to_query(msa: UInt8[np.ndarray, "N_seq N_res"]) -> Float64[np.ndarray, " N_seq"]:
    """Share of each row's residues that equal the query's in their column; 0 for a row of gaps."""
    present = msa != GAP
    equal = np.count_nonzero((msa == msa[0]) & present, axis=1)
    return equal / np.maximum(np.count_nonzero(present, axis=1), 1)


def coverage_of_query(msa: UInt8[np.ndarray, "N_seq N_res"]) -> Float64[np.ndarray, " N_seq"]:
    """Share of the columns in which each row has a residue."""
    return np.count_nonzero(msa != GAP, axis=1) / msa.shape[1]


def _one_hot(msa: UInt8[np.ndarray, "N_seq N_res"]) -> Float32[np.ndarray, "N_seq N_cell"]:
    return (msa[:, :, None] == np.arange(N_MSA_LETTERS, dtype=np.uint8)).reshape(len(msa), -1).astype(np.float32)


def neff(msa: UInt8[np.ndarray, "N_seq N_res"], *, identity: float = 0.8) -> float:
    """Effective number of sequences: the sum of `sequence_weights`."""
    check_letters(msa)
    return float(sequence_weights(msa, identity=identity).sum())


def unique_rows(msa: Integer[np.ndarray, "N_seq N_res"]) -> Int64[np.ndarray, "N_kept"]:
    """The first of each set of equal rows, in ascending order."""
    as_bytes = np.ascontiguousarray(msa).view(np.dtype((np.void, msa.shape[1] * msa.itemsize))).ravel()
    _, first = np.unique(as_bytes, return_index=True)
    return np.sort(first).astype(np.int64)


def check_letters(msa: np.ndarray) -> None:
    """Raise a ValueError unless `msa` is a matrix of `MSA_ALPHABET` numbers."""
    if msa.ndim != 2 or msa.size == 0:
        raise ValueError(f"msa has shape {msa.shape}, expected (N_seq, N_res), both at least 1")
    if msa.max() > GAP:
        raise ValueError(f"msa holds the number {msa.max()}, letters are 0 to {GAP}")
