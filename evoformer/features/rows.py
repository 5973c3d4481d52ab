"""Rows of characters to letter numbers and deletions, for formats with insertions in lower case and for the others."""

import string
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evoformer.constants import AMBIGUOUS, GAP, MSA_ALPHABET, UNKNOWN
from evoformer.features.alignment import SparseDeletions, SparseLetters
from evoformer.features.records import Record, Report, listed, quoted

# Table values: a letter's number; for a letter read as another one, that one's number plus 32, or plus 64 for the
# second of two (O, which is X, as J is); and these two.
_LETTER = 31
_INSERTION = 254
_OTHER = 255  # a character that no row may have
_UNUSUAL_GAPS = b"_~"
_CHARACTERS_AT_ONCE = 2**18


def _letter_table() -> NDArray[np.uint8]:
    table = np.full(256, _OTHER, np.uint8)
    for letter in string.ascii_uppercase:
        table[ord(letter)] = MSA_ALPHABET.index(AMBIGUOUS.get(letter, letter))
    for letter in AMBIGUOUS:
        table[ord(letter)] += 64 if letter == "O" else 32
    for gap in b"-" + _UNUSUAL_GAPS:
        table[gap] = GAP
    return table


_CHARACTER = np.zeros(256, np.uint8)  # of the table values of letters read as others
for _letter in AMBIGUOUS:
    _CHARACTER[_letter_table()[ord(_letter)]] = ord(_letter)
_A3M = _letter_table()
_A3M[np.frombuffer(string.ascii_lowercase.encode(), np.uint8)] = _INSERTION
_ALIGNED = _letter_table()
_ALIGNED[ord(".")] = GAP


def a3m_matrix(
    records: Sequence[Record], report: Report, *, uppercase: bool = False
) -> tuple[NDArray[np.uint8], SparseDeletions, SparseLetters]:
    """Rows where lower case is an insertion, upper case and `-` a column, and `.` nothing (A3M and A2M).

    Args:
        records: the sequences, the query first
        report: where errors and oddities go
        uppercase: read lower case as columns

    Returns:
        letters [N_seq, N_res]; the residues inserted before each column, those after the last one left out;
        the letters that were read as others
    """
    characters = _Characters(records, report, _A3M, blank=b".", uppercase=uppercase)
    query, _ = characters.coded(slice(0, 1))
    N_res = int(np.count_nonzero(query != _INSERTION))
    query_letters = query[query != _INSERTION] & _LETTER
    if not (query_letters <= UNKNOWN).any():
        if (query == _INSERTION).any():
            hint = "; uppercase=True reads lower case as match letters"
            raise report.error(f"query has no upper-case (match) letters: {records[0]}{hint}", record=records[0])
        raise report.error(f"query has no residues, only gaps: {records[0]}", record=records[0])

    msa = np.empty((len(records), N_res), np.uint8)
    deletions, ambiguous = _Deletions(N_res), _Ambiguous()
    for rows in characters.portions():
        codes, ends = characters.coded(rows)
        inserted = np.flatnonzero(codes == _INSERTION)
        owner = np.searchsorted(ends, inserted, side="right")
        widths = np.diff(ends, prepend=0) - np.bincount(owner, minlength=len(ends))
        wrong = np.flatnonzero(widths != N_res)
        if len(wrong):
            record = records[rows][wrong[0]]
            raise report.error(f"{record} has {widths[wrong[0]]} match columns, expected {N_res}", record=record)
        msa[rows] = ambiguous.add(rows.start, codes[codes != _INSERTION].reshape(-1, N_res))
        column = inserted - np.arange(len(inserted)) - owner * N_res  # the match letters before it in its row
        deletions.add(owner + rows.start, column)
    characters.close()

    gaps = np.flatnonzero(msa[0] == GAP)
    if len(gaps):
        msa[0, gaps] = UNKNOWN
        where = ("column " if len(gaps) == 1 else "columns ") + listed([str(gap) for gap in gaps])
        report.note(
            f"query has a gap at {where} (counted from 0), read as X; aligned FASTA with gaps in the query needs "
            "format='fasta'",
            record=records[0],
        )
    return msa, deletions.sparse(), ambiguous.sparse()


def aligned_matrix(
    records: Sequence[Record], report: Report, *, fasta: bool = False
) -> tuple[NDArray[np.uint8], SparseDeletions, SparseLetters]:
    """Rows of one length, in any case, `-` and `.` both gaps (FASTA, Stockholm, Clustal, plain rows).

    Columns where the query has a gap are removed; the residues that other rows have there are insertions.

    Args:
        records: the sequences, the query first
        report: where errors and oddities go
        fasta: whether the file may be A3M, taken for FASTA

    Returns:
        letters [N_seq, N_res]; the residues removed before each column that is left, those after the last one left out;
        the letters that were read as others
    """
    characters = _Characters(records, report, _ALIGNED, uppercase=True)
    query, _ = characters.coded(slice(0, 1))
    kept = np.flatnonzero(query != GAP)
    removed = np.flatnonzero(query == GAP)
    place = np.searchsorted(kept, removed)  # the column that is left after each removed one

    msa = np.empty((len(records), len(kept)), np.uint8)
    deletions, ambiguous = _Deletions(len(kept)), _Ambiguous()
    for rows in characters.portions():
        codes, ends = characters.coded(rows)
        wrong = np.flatnonzero(np.diff(ends, prepend=0) != len(query))
        if len(wrong):
            record = records[rows][wrong[0]]
            widths = [characters.width(row) for row in range(len(records))]
            distinct = listed([str(width) for width in dict.fromkeys(widths)])
            first = f"{record} is the first to differ from the query"
            hint = _a3m_hint(records) if fasta else ""
            raise report.error(f"not an alignment, rows have {distinct} columns; {first}{hint}", record=record)
        columns = codes.reshape(len(ends), len(query))
        msa[rows] = ambiguous.add(rows.start, columns[:, kept])
        owner, which = np.nonzero(columns[:, removed] != GAP)
        deletions.add(owner + rows.start, place[which])
    characters.close()
    if not len(kept):
        raise report.error(f"query has no residues, only gaps: {records[0]}", record=records[0])
    return msa, deletions.sparse(), ambiguous.sparse()


def _a3m_hint(records: Sequence[Record]) -> str:
    """What to do with ragged rows whose upper-case letters and `-` agree in number."""
    not_columns = string.ascii_lowercase.encode() + b".*"
    widths = {len(record.row.translate(None, not_columns)) for record in records}
    if len(widths) != 1 or 0 in widths:
        return ""
    return f"; without lower-case letters all rows have {widths.pop()}: format='a3m' reads those as insertions"


class _Ambiguous:
    """Cells with letters read as others, collected portion by portion."""

    def __init__(self) -> None:
        self.found: list[SparseLetters] = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8))]

    def add(self, first_row: int, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The letter numbers of rows of table values."""
        rows, columns = np.nonzero(codes > _LETTER)
        self.found.append((rows + first_row, columns, _CHARACTER[codes[rows, columns]]))
        return codes & np.uint8(_LETTER)

    def sparse(self) -> SparseLetters:
        """Rows, columns and characters."""
        rows, columns, characters = zip(*self.found, strict=True)
        return np.concatenate(rows), np.concatenate(columns), np.concatenate(characters)


class _Deletions:
    """Counts of insertions, collected portion by portion."""

    def __init__(self, N_res: int) -> None:
        self.N_res = N_res
        self.cells: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self.counts: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]

    def add(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> None:
        """Residues inserted before these columns, ordered by row and column; after the last one they do not count."""
        inside = columns < self.N_res
        cells = rows[inside] * self.N_res + columns[inside]
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        self.cells.append(cells[starts])
        self.counts.append(np.diff(starts, append=len(cells)).astype(np.int32))

    def sparse(self) -> SparseDeletions:
        """Rows, columns and counts."""
        cells = np.concatenate(self.cells)
        return cells // max(self.N_res, 1), cells % max(self.N_res, 1), np.concatenate(self.counts)


class _Characters:
    """The letter numbers of records, made for a portion of the rows at a time so that little memory is in use."""

    def __init__(
        self,
        records: Sequence[Record],
        report: Report,
        table: NDArray[np.uint8],
        *,
        blank: bytes = b"",
        uppercase: bool = False,
    ) -> None:
        """`blank` is a character of the file's rows that means nothing."""
        self.records, self.report, self.table = records, report, table
        self.blank, self.uppercase = blank, uppercase
        self.unusual: set[str] = set()
        self.final_stars: list[int] = []
        self.inner_stars: list[int] = []

    def portions(self) -> Iterator[slice]:
        """All rows, some at a time."""
        size = max(1, _CHARACTERS_AT_ONCE // max(1, len(self.records[0].row)))
        for start in range(0, len(self.records), size):
            yield slice(start, min(start + size, len(self.records)))

    def coded(self, rows: slice) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The rows' letter numbers in one array, and where each row ends.

        Stop codons that end a row are removed (or, where each is a column, made gaps), others are X.
        """
        texts = [record.row for record in self.records[rows]]
        characters = b"".join(texts)
        if self.blank and self.blank in characters:
            texts = [text.replace(self.blank, b"") for text in texts]
            characters = b"".join(texts)
        if b"*" in characters:
            texts = [self._without_stars(row, text) for row, text in enumerate(texts, start=rows.start)]
            characters = b"".join(texts)
        if self.uppercase:
            characters = characters.upper()
        codes = self.table[np.frombuffer(characters, np.uint8)]
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        bad = np.flatnonzero(codes == _OTHER)
        if len(bad):
            known = set(string.ascii_letters + "*" + string.whitespace + self.blank.decode())
            known |= {chr(i) for i in np.flatnonzero(self.table != _OTHER)}
            record = self.records[rows][np.searchsorted(ends, bad[0], side="right")]
            raise _bad_character(record, known, self.report)
        self.unusual |= {chr(gap) for gap in _UNUSUAL_GAPS if gap in characters}
        return codes, ends

    def width(self, row: int) -> int:
        """Characters of a row, without its last stars."""
        return len(self.records[row].row.rstrip(b"*"))

    def close(self) -> None:
        """Tell the report what was odd."""
        for rows, what in ((self.final_stars, "trailing '*' removed from"), (self.inner_stars, "'*' read as X in")):
            found = sorted(set(rows))
            if found:
                self.report.note(f"{what} {_numbers(found, self.records)}", record=self.records[found[0]])
        if self.unusual:
            gaps = " and ".join(repr(gap) for gap in sorted(self.unusual))
            first = next(record for record in self.records if any(gap in record.row for gap in _UNUSUAL_GAPS))
            self.report.note(f"{gaps} read as gaps", record=first)

    @cached_property
    def _stars_are_columns(self) -> bool:
        return not self.blank and len({len(record.row) for record in self.records}) == 1

    def _without_stars(self, row: int, text: bytes) -> bytes:
        if text.endswith(b"*"):
            self.final_stars.append(row)
            stripped = text.rstrip(b"*")
            text = stripped.ljust(len(text), b"-") if self._stars_are_columns else stripped
        if b"*" in text:
            self.inner_stars.append(row)
            text = text.replace(b"*", b"X")
        return text


def _bad_character(record: Record, known: set[str], report: Report) -> Exception:
    for line, before, piece in record.pieces:
        for i, character in enumerate(piece.decode("utf-8", "replace"), start=before + 1):
            if character not in known:
                where = f"record {record.number} {quoted(record.id)}, line {line}, column {i}"
                message = f"{where}: {character!r} is neither a residue nor a gap"
                return report.error(message, record=record, line=line, column=i)
    raise AssertionError(f"no bad character in {record}")


def _numbers(places: list[int], records: Sequence[Record]) -> str:
    word = "record" if len(places) == 1 else "records"
    return f"{word} {listed([str(records[place].number) for place in places])}"
