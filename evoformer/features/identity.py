"""How alike the rows of an alignment are."""

import numpy as np
from jaxtyping import Float32, Float64, Int64, Integer, UInt8

from evoformer.constants import GAP, N_MSA_LETTERS

ROWS_AT_ONCE = 1024  # a block of the comparison of every row with every other
PAIRS_AT_ONCE = 2**13  # of rows compared letter by letter
N_GROUP = 8  # of letters, in the first comparison


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
    first, row_of, copies = _distinct_rows(msa)
    rows = msa[first][:, np.argsort(_largest_share(msa), kind="stable")]  # columns that tell rows apart come first
    needed = identity * msa.shape[1] - 1e-6
    neighbours = np.zeros(len(rows))
    blocks = [slice(start, start + ROWS_AT_ONCE) for start in range(0, len(rows), ROWS_AT_ONCE)]
    for i, block in enumerate(blocks):
        for others in blocks[i:]:
            left, right = _near_pairs(rows[block], rows[others], needed)
            neighbours[block] += np.bincount(left, copies[others][right], minlength=len(rows[block]))
            if others != block:
                neighbours[others] += np.bincount(right, copies[block][left], minlength=len(rows[others]))
    return 1 / neighbours[row_of]


def _near_pairs(
    rows: UInt8[np.ndarray, "N_row N_res"], others: UInt8[np.ndarray, "N_other N_res"], needed: float
) -> tuple[Int64[np.ndarray, " N_pair"], Int64[np.ndarray, " N_pair"]]:
    """The pairs of a row and another one that are equal in at least `needed` columns.

    First by groups of letters, and in part of the columns, which can only make them more alike, and is less work.
    """
    N_res = rows.shape[1]
    part = min(N_res, int(2.5 * (N_res - needed)) + 1)
    equal = _equal_columns(rows[:, :part] % N_GROUP, others[:, :part] % N_GROUP, N_GROUP)
    left, right = np.nonzero(equal + (N_res - part) >= needed)
    if len(left) > len(rows) * len(others) // 8:
        left, right = np.nonzero(_equal_columns(rows, others, N_MSA_LETTERS) >= needed)
        return left, right
    near = np.empty(len(left), bool)
    for start in range(0, len(left), PAIRS_AT_ONCE):
        pairs = slice(start, start + PAIRS_AT_ONCE)
        near[pairs] = np.count_nonzero(rows[left[pairs]] == others[right[pairs]], axis=1) >= needed
    return left[near], right[near]


def _equal_columns(
    rows: UInt8[np.ndarray, "N_row N_res"], others: UInt8[np.ndarray, "N_other N_res"], N_letter: int
) -> Float32[np.ndarray, "N_row N_other"]:
    """In how many columns each row equals each other: whole numbers, exact in float32."""
    one_hot, one_hot_others = _one_hot(rows, N_letter), _one_hot(others, N_letter)
    return one_hot @ one_hot_others.T


def _distinct_rows(
    msa: UInt8[np.ndarray, "N_seq N_res"],
) -> tuple[Int64[np.ndarray, " N_row"], Int64[np.ndarray, " N_seq"], Int64[np.ndarray, " N_row"]]:
    """The first of each set of equal rows, which set each row is of, and how many are in each set."""
    as_bytes = np.ascontiguousarray(msa).view(np.dtype((np.void, msa.shape[1]))).ravel()
    _, first, row_of, copies = np.unique(as_bytes, return_index=True, return_inverse=True, return_counts=True)
    return first, row_of, copies


def _largest_share(msa: UInt8[np.ndarray, "N_seq N_res"]) -> Int64[np.ndarray, " N_res"]:
    """How many rows have the commonest letter of each column."""
    counts = [np.count_nonzero(msa == letter, axis=0) for letter in range(N_MSA_LETTERS)]
    return np.max(counts, axis=0)


def identity_to_query(msa: UInt8[np.ndarray, "N_seq N_res"]) -> Float64[np.ndarray, " N_seq"]:
    """Share of each row's residues that equal the query's in their column; 0 for a row of gaps."""
    present = msa != GAP
    equal = np.count_nonzero((msa == msa[0]) & present, axis=1)
    return equal / np.maximum(np.count_nonzero(present, axis=1), 1)


def coverage_of_query(msa: UInt8[np.ndarray, "N_seq N_res"]) -> Float64[np.ndarray, " N_seq"]:
    """Share of the columns in which each row has a residue."""
    return np.count_nonzero(msa != GAP, axis=1) / msa.shape[1]


def _one_hot(msa: UInt8[np.ndarray, "N_seq N_res"], N_letter: int) -> Float32[np.ndarray, "N_seq N_cell"]:
    return np.eye(N_letter, dtype=np.float32)[msa].reshape(len(msa), -1)


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
