"""A multiple sequence alignment in memory: letters as numbers, names, and the insertions left out of its columns."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evoformer.constants import MSA_ALPHABET, N_MSA_LETTERS
from evoformer.errors import InputError

# Which entries of a deletion matrix are not zero: their rows, their columns, and their values.
SparseDeletions = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]

_LETTERS = np.frombuffer(MSA_ALPHABET.encode(), np.uint8)


class AlignmentError(InputError):
    """An alignment that cannot be read.

    Attributes (None where not known):
        path: the file, as a string
        record: number of the sequence in the file, counted from 1
        line: line of the file, counted from 1
        column: character of that line, counted from 1
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        record: int | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message if path is None else f"{path}: {message}")
        self.path = path
        self.record = record
        self.line = line
        self.column = column


class AlignmentWarning(UserWarning):
    """An alignment that was read, although something in it looks odd. At most one a file."""


class Alignment:
    """Aligned sequences; row 0 is the query. Not to be changed once made: selections return new ones.

    Args:
        msa: [N_seq, N_res], places in `constants.MSA_ALPHABET`: 0 to 19 residues, 20 X, 21 gap
        ids: N_seq short names, which may repeat; made up if not given
        descriptions: N_seq whole header lines; the ids if not given
        deletions: AlphaFold's deletion matrix, the number of residues inserted just before a column: either dense
            [N_seq, N_res], or three arrays with the rows, columns and values of the entries that are not zero
        metadata: whatever else the file says. `read_alignment` sets, for ColabFold's headers, `chain_lengths` and
            `copies` (a number for each chain) and `row_coverage` (bool [N_seq, N_chain]: has the row residues there)

    Raises:
        ValueError: for sizes that disagree, letters out of range, or an alignment without any row or column.
    """

    def __init__(
        self,
        msa: ArrayLike,
        ids: Sequence[str] | None = None,
        descriptions: Sequence[str] | None = None,
        deletions: ArrayLike | tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        letters = np.asarray(msa)
        if letters.ndim != 2 or 0 in letters.shape:
            raise ValueError(f"an alignment needs at least one row and one column, msa has shape {letters.shape}")
        if letters.min() < 0 or letters.max() >= N_MSA_LETTERS:
            found = f"{letters.min()} to {letters.max()}"
            raise ValueError(f"msa must hold letter numbers 0 to {N_MSA_LETTERS - 1}, it holds {found}")
        self.msa: NDArray[np.uint8] = letters.astype(np.uint8, copy=False)
        self.ids = [f"sequence_{i}" for i in range(self.N_seq)] if ids is None else list(ids)
        self.descriptions = list(self.ids) if descriptions is None else list(descriptions)
        self.metadata: dict[str, Any] = dict(metadata or {})
        for name, values in (("ids", self.ids), ("descriptions", self.descriptions)):
            if len(values) != self.N_seq:
                raise ValueError(f"msa has {self.N_seq} rows, but there are {len(values)} {name}")
        self._deletions = self._as_sparse(deletions)

    def _as_sparse(self, deletions: ArrayLike | tuple[ArrayLike, ArrayLike, ArrayLike] | None) -> SparseDeletions:
        if deletions is None:
            deletions = ((), (), ())
        if isinstance(deletions, tuple):
            rows, columns, counts = deletions
        else:
            dense = np.asarray(deletions)
            if dense.shape != self.msa.shape:
                raise ValueError(f"msa has shape {self.msa.shape}, deletions have {dense.shape}")
            rows, columns = np.nonzero(dense)
            counts = dense[rows, columns]
        places = np.asarray(rows, np.int64), np.asarray(columns, np.int64)
        for name, place, size in zip(("rows", "columns"), places, self.msa.shape, strict=True):
            if len(place) and not 0 <= place.min() <= place.max() < size:
                raise ValueError(f"msa has {size} {name}, deletions are in {name} {place.min()} to {place.max()}")
        return *places, np.asarray(counts, np.int32)

    @property
    def N_seq(self) -> int:  # noqa: N802 - the supplement's capitals
        """Number of sequences, the query included."""
        return int(self.msa.shape[0])

    @property
    def N_res(self) -> int:  # noqa: N802
        """Number of columns."""
        return int(self.msa.shape[1])

    @property
    def deletions(self) -> NDArray[np.int32]:
        """Residues inserted just before each column, int32 [N_seq, N_res]. A new array at every access."""
        rows, columns, counts = self._deletions
        dense = np.zeros(self.msa.shape, np.int32)
        dense[rows, columns] = counts
        return dense

    @property
    def query(self) -> str:
        """Row 0's letters."""
        return self.sequence(0)

    def sequence(self, row: int) -> str:
        """One row's letters, `-` for gaps."""
        return _LETTERS[self.msa[row]].tobytes().decode()

    def __len__(self) -> int:
        return self.N_seq

    def __repr__(self) -> str:
        return f"Alignment(N_seq={self.N_seq}, N_res={self.N_res}, query={self.ids[0]!r})"

    def __getitem__(self, index: Any) -> "Alignment":
        """`alignment[rows]` or `alignment[rows, columns]`, each a number, slice, index array or bool mask.

        Both axes stay: a number selects one row. With columns left out or repeated, the counts of deletions stay with
        the columns they were counted for, and `chain_lengths` are counted anew.
        """
        row_index, column_index = index if isinstance(index, tuple) else (index, slice(None))
        rows = np.atleast_1d(np.arange(self.N_seq)[row_index])
        columns = np.atleast_1d(np.arange(self.N_res)[column_index])
        whole_rows = isinstance(column_index, slice) and column_index == slice(None)
        old_rows, old_columns, counts = self._deletions
        entries, new_rows = _entries_of(old_rows, rows)
        if whole_rows:
            deletions = (new_rows, old_columns[entries], counts[entries])
        else:
            chosen, new_columns = _entries_of(old_columns[entries], columns)
            deletions = (new_rows[chosen], new_columns, counts[entries][chosen])
        return Alignment(
            self.msa[rows] if whole_rows else self.msa[np.ix_(rows, columns)],
            [self.ids[row] for row in rows],
            [self.descriptions[row] for row in rows],
            deletions,
            self._metadata_of(rows, columns),
        )

    def _metadata_of(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> dict[str, Any]:
        metadata = dict(self.metadata)
        if "row_coverage" in metadata:
            metadata["row_coverage"] = metadata["row_coverage"][rows]
        if "chain_lengths" in metadata:
            lengths = metadata["chain_lengths"]
            chain_of_column = np.repeat(np.arange(len(lengths)), lengths)[columns]
            metadata["chain_lengths"] = np.bincount(chain_of_column, minlength=len(lengths)).tolist()
        return metadata

    def deduplicate(self) -> "Alignment":
        """Without the rows equal to an earlier one, whose deletions are the ones that stay.

        Rows are compared as letter numbers. AlphaFold compares letters, and so keeps two rows that differ only where
        one has B and the other D, though their features are the same.
        """
        as_bytes = np.ascontiguousarray(self.msa).view(np.dtype((np.void, self.N_res))).ravel()
        _, first = np.unique(as_bytes, return_index=True)
        return self[np.sort(first)]


def _entries_of(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The entries whose key is wanted, once for each time it is, and which of `wanted` each one belongs to."""
    order = np.argsort(keys, kind="stable")
    start = np.searchsorted(keys[order], wanted, side="left")
    length = np.searchsorted(keys[order], wanted, side="right") - start
    owner = np.repeat(np.arange(len(wanted)), length)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length)
    return order[np.repeat(start, length) + place], owner
