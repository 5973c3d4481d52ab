"""A multiple sequence alignment in memory: letters as numbers, names, and the insertions left out of its columns."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evoformer.constants import GAP, MSA_ALPHABET, N_MSA_LETTERS, UNKNOWN
from evoformer.errors import InputError
from evoformer.features.identity import coverage_of_query, identity_to_query, neff, unique_rows
from evoformer.features.names import Names

Places = NDArray[np.signedinteger[Any]]
# Which entries of a deletion matrix are not zero: their rows, their columns, and their values.
SparseDeletions = tuple[Places, Places, NDArray[np.int32]]
# Cells whose letter was read as another one: their rows, their columns, and the characters.
SparseLetters = tuple[Places, Places, NDArray[np.uint8]]

_LETTERS = np.frombuffer(MSA_ALPHABET.encode(), np.uint8)


class AlignmentError(InputError):
    """An alignment that cannot be read.

    Attributes (None where not known):
        path: the file, as a string
        record: number of the sequence in the file, counted from 1
        line: line of the file, counted from 1
        column: character of that line, counted from 1
        id: the sequence's name
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        record: int | None = None,
        line: int | None = None,
        column: int | None = None,
        id: str | None = None,
    ) -> None:
        super().__init__(message if path is None else f"{path}: {message}")
        self.path = path
        self.record = record
        self.line = line
        self.column = column
        self.id = id


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
        ambiguous: where the file has B, J, O, U or Z, which `msa` holds as D, X, X, C and E: three arrays with rows,
            columns and ASCII codes
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
        ambiguous: SparseLetters | None = None,
    ) -> None:
        letters = np.asarray(msa)
        if letters.ndim != 2 or 0 in letters.shape:
            raise ValueError(f"an alignment needs at least one row and one column, msa has shape {letters.shape}")
        if letters.min() < 0 or letters.max() >= N_MSA_LETTERS:
            found = f"{letters.min()} to {letters.max()}"
            raise ValueError(f"msa must hold letter numbers 0 to {N_MSA_LETTERS - 1}, it holds {found}")
        self.msa: NDArray[np.uint8] = letters.astype(np.uint8, copy=False)
        self._ids = Names(f"sequence_{i}" for i in range(self.N_seq)) if ids is None else _kept(ids)
        self._descriptions = self._ids if descriptions is None else _kept(descriptions)
        self.metadata: dict[str, Any] = dict(metadata or {})
        for name, values in (("ids", self._ids), ("descriptions", self._descriptions)):
            if len(values) != self.N_seq:
                raise ValueError(f"msa has {self.N_seq} rows, but there are {len(values)} {name}")
        self._deletions = self._as_sparse(deletions)
        nothing = np.zeros(0, np.int32)
        self._ambiguous: SparseLetters = (nothing, nothing, np.zeros(0, np.uint8)) if ambiguous is None else ambiguous

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
        places = np.asarray(rows, np.int32), np.asarray(columns, np.int32)
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

    @cached_property
    def ids(self) -> list[str]:
        """N_seq short names, which may repeat."""
        return list(self._ids)

    @cached_property
    def descriptions(self) -> list[str]:
        """N_seq whole header lines."""
        return list(self._descriptions)

    @property
    def deletions(self) -> NDArray[np.int32]:
        """Residues inserted just before each column, int32 [N_seq, N_res]. A new array at every access."""
        rows, columns, counts = self._deletions
        dense = np.zeros(self.msa.shape, np.int32)
        dense[rows, columns] = counts
        return dense

    @property
    def ambiguous(self) -> SparseLetters:
        """Where the file has B, J, O, U or Z: rows, columns and ASCII codes."""
        return self._ambiguous

    @property
    def letters(self) -> NDArray[np.uint8]:
        """Letters as the file has them, in upper case and with `-` for gaps, ASCII codes [N_seq, N_res].

        Here alone B, J, O, U and Z are told from what they are read as. A new array at every access.
        """
        rows, columns, characters = self._ambiguous
        letters = _LETTERS[self.msa]
        letters[rows, columns] = characters
        return letters

    @property
    def aatype(self) -> NDArray[np.uint8]:
        """AlphaFold's `aatype`, numbers 0 to 20 [N_res]: row 0, where B, J, O, U and Z, and gaps, are X.

        AlphaFold's MSA has D, X, X, C and E in the same places.
        """
        rows, columns, _ = self._ambiguous
        residues = np.minimum(self.msa[0], UNKNOWN)
        residues[columns[rows == 0]] = UNKNOWN
        return residues

    @property
    def query(self) -> str:
        """Row 0's letters."""
        return self.sequence(0)

    def sequence(self, row: int) -> str:
        """One row's letters, `-` for gaps."""
        return _LETTERS[self.msa[row]].tobytes().decode()

    @property
    def sparse_deletions(self) -> SparseDeletions:
        """Rows, columns and values of the deletions that are not zero, in the order of rows, then of columns."""
        rows, columns, counts = self._deletions
        order = np.lexsort((columns, rows))
        return rows[order], columns[order], counts[order]

    def __len__(self) -> int:
        return self.N_seq

    def __repr__(self) -> str:
        return f"Alignment(N_seq={self.N_seq}, N_res={self.N_res}, query={self.ids[0]!r})"

    def __eq__(self, other: object) -> bool:
        """Same letters, as `letters` has them, deletions and ids, in the same order.

        Descriptions and metadata, which not every format holds, may differ.
        """
        if not isinstance(other, Alignment):
            return NotImplemented
        mine: list[NDArray[Any]] = [self.msa, self.letters, *self.sparse_deletions]
        theirs: list[NDArray[Any]] = [other.msa, other.letters, *other.sparse_deletions]
        return self.ids == other.ids and all(map(np.array_equal, mine, theirs))

    __hash__ = None  # type: ignore[assignment]  # as for every class that defines equality of arrays

    def __getitem__(self, index: Any) -> "Alignment":
        """`alignment[rows]` or `alignment[rows, columns]`, each a number, slice, index array or bool mask.

        Both axes stay: a number selects one row. With columns left out or repeated, the counts of deletions stay with
        the columns they were counted for, and `chain_lengths` are counted anew.
        """
        row_index, column_index = index if isinstance(index, tuple) else (index, slice(None))
        rows = np.atleast_1d(np.arange(self.N_seq)[row_index])
        columns = np.atleast_1d(np.arange(self.N_res)[column_index])
        whole_rows = isinstance(column_index, slice) and column_index == slice(None)
        selected = columns if not whole_rows else None
        return Alignment(
            self.msa[rows] if whole_rows else self.msa[np.ix_(rows, columns)],
            [self.ids[row] for row in rows],
            [self.descriptions[row] for row in rows],
            _selected(*self._deletions, rows, selected),
            self._metadata_of(rows, columns),
            _selected(*self._ambiguous, rows, selected),
        )

    def _metadata_of(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> dict[str, Any]:
        metadata = dict(self.metadata)
        if "row_coverage" in metadata:
            metadata["row_coverage"] = metadata["row_coverage"][rows]
        if "chain_lengths" in metadata and not np.array_equal(columns, np.arange(self.N_res)):
            lengths = metadata["chain_lengths"]
            chain_of_column = np.repeat(np.arange(len(lengths)), lengths)[columns]
            metadata["chain_lengths"] = np.bincount(chain_of_column, minlength=len(lengths)).tolist()
            if "row_coverage" in metadata:
                present = self.msa[np.ix_(rows, columns)] != GAP
                covered = [present[:, chain_of_column == chain].any(axis=1) for chain in range(len(lengths))]
                metadata["row_coverage"] = np.stack(covered, axis=1)
        return metadata

    def deduplicate(self) -> "Alignment":
        """Without the rows equal to an earlier one, whose deletions are the ones that stay.

        As in AlphaFold, rows are compared as letters of the file: two that differ only where one has B and the other D
        both stay.
        """
        return self[unique_rows(self.letters)]

    def filter(self, *, min_coverage: float = 0.0, min_identity: float = 0.0, max_identity: float = 1.0) -> "Alignment":
        """The rows that resemble the query enough and cover enough of it; always the query itself.

        Args:
            min_coverage: share of the columns in which the row has a residue, 0 to 1 (hhfilter's `-cov`, in percent)
            min_identity: share of the row's residues, gaps left out, that equal the query's in their column, 0 to 1
                (hhfilter's `-qid`)
            max_identity: the same share at most, so as to drop near copies of the query

        Raises:
            ValueError: for a share below 0 or above 1, such as a percentage.
        """
        shares = {"min_coverage": min_coverage, "min_identity": min_identity, "max_identity": max_identity}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name} is a share between 0 and 1, not {share}")
        rounding = 1e-9
        identity = identity_to_query(self.msa)
        kept = coverage_of_query(self.msa) >= min_coverage - rounding
        kept &= (identity >= min_identity - rounding) & (identity <= max_identity + rounding)
        kept[0] = True
        return self[kept]

    def neff(self, identity: float = 0.8) -> float:
        """Effective number of sequences: each row counts one over the number of rows, itself included, like it.

        Args:
            identity: rows are alike from this share of equal columns on, a gap being a letter too
        """
        return neff(self.msa, identity=identity)

    def concatenate(self, *others: "Alignment", axis: Literal["rows", "columns"] = "rows") -> "Alignment":
        """This alignment and others as one.

        Args:
            others: for rows, alignments of the same query, whose rows follow; none is dropped, repeated queries
                included, see `deduplicate`. For columns, alignments of other chains, whose row i continues row i
            axis: "rows" stacks hits of several databases, "columns" joins the chains of a complex

        Returns:
            Rows keep ids and descriptions, and of the metadata what all share. Columns join the ids and the
            descriptions of a row by tabs, as ColabFold does, and set `chain_lengths`, `copies` and `row_coverage`.

        Raises:
            ValueError: for other queries, or for another number of rows.
        """
        if axis not in ("rows", "columns"):
            raise ValueError(f"axis must be 'rows' or 'columns', not {axis!r}")
        parts = [self, *others]
        return _stacked(parts) if axis == "rows" else _joined(parts)

    def write(self, path: str | PathLike[str], format: str | None = None) -> None:
        """Write a file in A3M, FASTA, Stockholm or Clustal, all of it or, where that fails, nothing.

        `read_alignment` gives an equal alignment back, with three exceptions: inserted letters are not known and
        written as `x`; insertions behind the last column are not known at all; and what the format cannot hold is
        changed with one warning. That is an id that is empty, repeated (Stockholm, Clustal) or has blanks in it, a
        gap in the query and, but for A3M, an insertion in it. Clustal has no place for descriptions, and only A3M for
        chains (ColabFold's header).

        Args:
            path: the file; with `.gz`, `.xz` or `.bz2` at the end it is compressed
            format: "a3m", "fasta", "stockholm" or "clustal"; None goes by the suffix

        Raises:
            AlignmentError: for an unknown format, or a file that cannot be written.

        Warns:
            AlignmentWarning: if something of the alignment cannot be written.
        """
        from evoformer.features.writing import write_alignment  # which needs this class

        write_alignment(self, path, format)


def _kept(names: Sequence[str]) -> Sequence[str]:
    return names if isinstance(names, Names) else list(names)


def _stacked(parts: Sequence[Alignment]) -> Alignment:
    first = parts[0]
    for part in parts[1:]:
        if part.query != first.query:
            sizes = f"{first.ids[0]!r} of {first.N_res} and {part.ids[0]!r} of {part.N_res} residues"
            raise ValueError(f"rows of different queries cannot be stacked: {sizes}")
    starts = np.cumsum([0, *(part.N_seq for part in parts)])
    deletions = _shifted([part.sparse_deletions for part in parts], starts, axis=0)
    ambiguous = _shifted([part._ambiguous for part in parts], starts, axis=0)
    metadata = {
        name: value
        for name, value in first.metadata.items()
        if name != "row_coverage" and all(part.metadata.get(name) == value for part in parts)
    }
    if "chain_lengths" in metadata and all("row_coverage" in part.metadata for part in parts):
        metadata["row_coverage"] = np.concatenate([part.metadata["row_coverage"] for part in parts])
    ids = [name for part in parts for name in part.ids]
    descriptions = [text for part in parts for text in part.descriptions]
    return Alignment(np.concatenate([part.msa for part in parts]), ids, descriptions, deletions, metadata, ambiguous)


def _joined(parts: Sequence[Alignment]) -> Alignment:
    first = parts[0]
    for part in parts[1:]:
        if part.N_seq != first.N_seq:
            raise ValueError(f"columns of {first.N_seq} and of {part.N_seq} rows cannot be joined")
    starts = np.cumsum([0, *(part.N_res for part in parts)])
    deletions = _shifted([part.sparse_deletions for part in parts], starts, axis=1)
    ambiguous = _shifted([part._ambiguous for part in parts], starts, axis=1)
    coverage = [part.metadata.get("row_coverage", (part.msa != GAP).any(axis=1, keepdims=True)) for part in parts]
    metadata = {
        "chain_lengths": [length for part in parts for length in part.metadata.get("chain_lengths", [part.N_res])],
        "copies": [number for part in parts for number in part.metadata.get("copies", [1])],
        "row_coverage": np.concatenate(coverage, axis=1),
    }
    ids = ["\t".join(names) for names in zip(*(part.ids for part in parts), strict=True)]
    descriptions = ["\t".join(texts) for texts in zip(*(part.descriptions for part in parts), strict=True)]
    return Alignment(
        np.concatenate([part.msa for part in parts], axis=1), ids, descriptions, deletions, metadata, ambiguous
    )


def _selected(
    old_rows: Places,
    old_columns: Places,
    values: NDArray[Any],
    rows: Places,
    columns: Places | None,
) -> tuple[Places, Places, NDArray[Any]]:
    """The sparse entries of some rows and columns, or of some rows and all columns, at their new places."""
    entries, new_rows = _entries_of(old_rows, rows)
    if columns is None:
        return new_rows, old_columns[entries], values[entries]
    chosen, new_columns = _entries_of(old_columns[entries], columns)
    return new_rows[chosen], new_columns, values[entries][chosen]


def _shifted(
    parts: Sequence[tuple[Places, Places, NDArray[Any]]], starts: NDArray[np.int64], *, axis: int
) -> tuple[Places, Places, NDArray[Any]]:
    """Sparse entries of several alignments as those of one, whose rows (axis 0) or columns (1) begin at `starts`."""
    places = [[part[i] + start * (i == axis) for i in (0, 1)] for part, start in zip(parts, starts, strict=False)]
    rows, columns = (np.concatenate([place[i] for place in places]) for i in (0, 1))
    return rows, columns, np.concatenate([part[2] for part in parts])


def _entries_of(keys: Places, wanted: Places) -> tuple[Places, Places]:
    """The entries whose key is wanted, once for each time it is, and which of `wanted` each one belongs to."""
    order = np.argsort(keys, kind="stable")
    start = np.searchsorted(keys[order], wanted, side="left")
    length = np.searchsorted(keys[order], wanted, side="right") - start
    owner = np.repeat(np.arange(len(wanted)), length)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length)
    return order[np.repeat(start, length) + place], owner
