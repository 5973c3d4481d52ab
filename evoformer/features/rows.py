"""Rows of characters to letter numbers and deletions, for formats with insertions in lower case and for the others."""

import string
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoformer.constants import AMBIGUOUS, GAP, MSA_ALPHABET, UNKNOWN
from evoformer.features.alignment import Places, SparseDeletions, SparseLetters
from evoformer.features.names import Names
from evoformer.features.records import WHITE_SPACE, Piece, Record, Records, Report, listed, quoted

# Table values: a letter's number; for a letter read as another one, that one's number plus 32, or plus 64 for the
# second of two (O, which is X, as J is); and these two.
_LETTER = 31
_INSERTION = 254
_OTHER = 255  # a character that no row may have
_UNUSUAL_GAPS = b"_~"
_CHARACTERS_AT_ONCE = 2**16
_CHARACTERS_PER_RECORD = 2**8  # as which an object beside its row is counted


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


def a3m_matrix(records: Records, report: Report, *, uppercase: bool = False) -> "Rows":
    """Rows where lower case is an insertion, upper case and `-` a column, and `.` nothing (A3M and A2M).

    Args:
        records: the sequences, the query first
        report: where errors and oddities go
        uppercase: read lower case as columns

    Returns:
        the rows; residues inserted after the last column are left out
    """
    characters = _Characters(records, report, _A3M, blank=b".", uppercase=uppercase)
    first = records.at(0)
    query, _ = characters.coded([first], 0)
    N_res = int(np.count_nonzero(query != _INSERTION))
    query_letters = query[query != _INSERTION] & _LETTER
    if not (query_letters <= UNKNOWN).any():
        if (query == _INSERTION).any():
            hint = "; uppercase=True reads lower case as match letters"
            raise report.error(f"query has no upper-case (match) letters: {first}{hint}", record=first)
        raise report.error(f"query has no residues, only gaps: {first}", record=first)

    rows = Rows(N_res)
    for start, portion in characters.portions():
        codes, ends = characters.coded(portion, start)
        where, counts = _runs(codes == _INSERTION, ends)
        counted = np.cumsum(np.append(np.int32(0), counts), dtype=np.int32)
        runs = np.searchsorted(where, ends)  # before each row's end
        widths = np.diff(ends - counted[runs], prepend=0)
        wrong = np.flatnonzero(widths != N_res)
        if len(wrong):
            record = portion[wrong[0]]
            raise report.error(f"{record} has {widths[wrong[0]]} match columns, expected {N_res}", record=record)
        if len(where):
            codes = codes[codes != _INSERTION]
        owner = np.repeat(np.arange(len(ends), dtype=np.int32), np.diff(runs, prepend=0))
        where -= counted[:-1]  # match letters before it
        where -= owner * np.int32(N_res)  # of its own row
        rows.add(portion, codes.reshape(-1, N_res), owner, where, counts)
    characters.close()

    msa = rows.msa
    gaps = np.flatnonzero(msa[0] == GAP)
    if len(gaps):
        msa[0, gaps] = UNKNOWN
        columns = ("column " if len(gaps) == 1 else "columns ") + listed([str(gap) for gap in gaps[:6]])
        report.note(
            f"query has a gap at {columns} (counted from 0), read as X; aligned FASTA with gaps in the query needs "
            "format='fasta'",
            record=first,
        )
    return rows


def aligned_matrix(records: Records, report: Report, *, fasta: bool = False) -> "Rows":
    """Rows of one length, in any case, `-` and `.` both gaps (FASTA, Stockholm, Clustal, plain rows).

    Columns where the query has a gap are removed; the residues that other rows have there are insertions.

    Args:
        records: the sequences, the query first
        report: where errors and oddities go
        fasta: whether the file may be A3M, taken for FASTA

    Returns:
        the rows, residues removed before a column that is left being insertions; those after the last one are left out
    """
    characters = _Characters(records, report, _ALIGNED, uppercase=True)
    first = records.at(0)
    query, _ = characters.coded([first], 0)
    kept = query != GAP
    N_kept = int(np.count_nonzero(kept))
    removed = np.flatnonzero(~kept)
    place = removed - np.arange(len(removed))  # the column that is left after each removed one

    rows = Rows(N_kept)
    for start, portion in characters.portions():
        codes, ends = characters.coded(portion, start)
        wrong = np.flatnonzero(np.diff(ends, prepend=0) != len(query))
        if len(wrong):
            record = portion[wrong[0]]
            distinct = listed([str(width) for width in dict.fromkeys(map(characters.width, records))])
            differs = f"{record} is the first to differ from the query"
            hint = _a3m_hint(records) if fasta else ""
            raise report.error(f"not an alignment, rows have {distinct} columns; {differs}{hint}", record=record)
        columns = codes.reshape(len(ends), len(query))
        owner, which = np.nonzero(columns[:, removed] != GAP)
        starts = np.flatnonzero(np.diff(owner * (N_kept + 1) + place[which], prepend=-1))
        counts = np.diff(starts, append=len(owner))
        letters = columns[:, kept] if len(removed) else columns
        rows.add(portion, letters, owner[starts], place[which[starts]], counts)
    characters.close()
    if not N_kept:
        raise report.error(f"query has no residues, only gaps: {first}", record=first)
    return rows


def _a3m_hint(records: Records) -> str:
    """What to do with ragged rows whose upper-case letters and `-` agree in number."""
    not_columns = string.ascii_lowercase.encode() + b".*"
    widths = {len(record.row.translate(None, not_columns)) for record in records}
    if len(widths) != 1 or 0 in widths:
        return ""
    return f"; without lower-case letters all rows have {widths.pop()}: format='a3m' reads those as insertions"


def _runs(chosen: NDArray[np.bool_], ends: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Where runs of chosen characters begin, and how many there are in each; none goes on beyond the end of its row."""
    if not chosen.any():
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    neighbour = np.zeros_like(chosen)
    neighbour[1:] = chosen[:-1]
    neighbour[ends[ends < len(chosen)]] = False
    starts = _where(chosen > neighbour)
    neighbour[:-1] = chosen[1:]
    neighbour[-1] = False
    neighbour[ends - 1] = False
    counts = _where(chosen > neighbour)
    counts += 1
    counts -= starts
    return starts, counts


class Rows:
    """Rows, collected portion by portion."""

    def __init__(self, N_res: int) -> None:
        self.N_res = N_res
        self.ids = Names()
        self.descriptions = self.ids  # until there is one that is not an id
        self._letters = bytearray()
        self._inserted: list[Places] = []  # cells of the matrix, counted row by row
        self._counts: list[NDArray[np.int32]] = []
        self._ambiguous: list[Places] = []
        self._characters: list[NDArray[np.uint8]] = []

    def add(
        self,
        portion: Sequence[Record],
        codes: NDArray[np.uint8],
        rows: NDArray[Any],
        columns: NDArray[Any],
        counts: NDArray[Any],
    ) -> None:
        """Records, their table values [N, N_res], and where how many residues are inserted before a column.

        Those after the last column do not count.
        """
        first = len(self.ids) * self.N_res
        number = np.dtype(np.int32 if first + codes.size < 2**31 else np.int64)
        if self.descriptions is self.ids and any(record.description != record.id for record in portion):
            self.descriptions = Names(self.ids)
        self.ids.extend(record.id for record in portion)
        if self.descriptions is not self.ids:
            self.descriptions.extend(record.description for record in portion)
        if codes.size and codes.max() > _LETTER:
            ambiguous = codes > _LETTER
            self._characters.append(_CHARACTER[codes[ambiguous]])
            cells: Places = _where(ambiguous.reshape(-1)).astype(number, copy=False)
            cells += first
            self._ambiguous.append(cells)
            codes = codes & np.uint8(_LETTER)
        self._letters += np.ascontiguousarray(codes).data
        if len(rows):
            inside = columns < self.N_res
            if not inside.all():
                rows, columns, counts = rows[inside], columns[inside], counts[inside]
            cells = rows.astype(number)
            cells *= self.N_res
            cells += columns
            cells += first
            self._inserted.append(cells)
            self._counts.append(counts.astype(np.int32, copy=False))

    @property
    def msa(self) -> NDArray[np.uint8]:
        """Letters [N_seq, N_res]."""
        return np.frombuffer(self._letters, np.uint8).reshape(len(self.ids), self.N_res)

    @property
    def deletions(self) -> SparseDeletions:
        """Rows, columns and counts."""
        return *self._places(self._inserted), np.concatenate([np.zeros(0, np.int32), *self._counts])

    @property
    def ambiguous(self) -> SparseLetters:
        """Rows, columns and characters of the letters read as others."""
        return *self._places(self._ambiguous), np.concatenate([np.zeros(0, np.uint8), *self._characters])

    def _places(self, cells: list[NDArray[Any]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        joined = cells[0] if len(cells) == 1 else np.concatenate([np.zeros(0, np.int32), *cells])
        N_res = max(self.N_res, 1)
        return (joined // N_res).astype(np.int32, copy=False), (joined % N_res).astype(np.int32, copy=False)


def _where(chosen: NDArray[np.bool_]) -> NDArray[np.int32]:
    """The places of True, found some at a time since numpy's are of eight bytes."""
    starts = range(0, len(chosen), _CHARACTERS_AT_ONCE)
    places = [np.flatnonzero(chosen[start : start + _CHARACTERS_AT_ONCE]).astype(np.int32) for start in starts]
    for start, found in zip(starts, places, strict=True):
        found += start
    return places[0] if len(places) == 1 else np.concatenate(places)


class _Characters:
    """The letter numbers of records, made for a portion of the rows at a time so that little memory is in use."""

    def __init__(
        self,
        records: Records,
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

    def portions(self) -> Iterator[tuple[int, list[Record]]]:
        """All records, some at a time, and the place of the first of them."""
        start, size = 0, 0
        portion: list[Record] = []
        for record in self.records:
            portion.append(record)
            size += len(record.text) + _CHARACTERS_PER_RECORD
            if size >= _CHARACTERS_AT_ONCE:
                yield start, portion
                start, size, portion = start + len(portion), 0, []
        if portion:
            yield start, portion

    def coded(self, portion: Sequence[Record], start: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The letter numbers of records in one array, and where each row ends; `start` is the first one's place.

        Stop codons that end a row are removed (or, where each is a column, made gaps), others are X.
        """
        texts = [record.text for record in portion]
        characters = b"".join(texts)
        if any(character in characters for character in WHITE_SPACE):
            texts = [text.translate(None, WHITE_SPACE) for text in texts]
            characters = b"".join(texts)
        if self.blank and self.blank in characters:
            texts = [text.replace(self.blank, b"") for text in texts]
            characters = b"".join(texts)
        if b"*" in characters:
            texts = [self._without_stars(row, text) for row, text in enumerate(texts, start=start)]
            characters = b"".join(texts)
        if self.uppercase:
            characters = characters.upper()
        codes = np.frombuffer(characters.translate(self.table.tobytes()), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        bad = codes == _OTHER
        if bad.any():
            known = set(string.ascii_letters + "*" + string.whitespace + self.blank.decode())
            known |= {chr(i) for i in np.flatnonzero(self.table != _OTHER)}
            record = portion[np.searchsorted(ends, bad.argmax(), side="right")]
            raise _bad_character(record, self.records.pieces(record), known, self.report)
        self.unusual |= {chr(gap) for gap in _UNUSUAL_GAPS if gap in characters}
        return codes, ends

    def width(self, record: Record) -> int:
        """Characters of a row, without its last stars."""
        return len(record.row.rstrip(b"*"))

    def close(self) -> None:
        """Tell the report what was odd."""
        for rows, what in ((self.final_stars, "trailing '*' removed from"), (self.inner_stars, "'*' read as X in")):
            found = sorted(set(rows))
            if found:
                first, *others = (self.records.at(row) for row in found)
                word = "records" if others else "record"
                numbers = listed([str(record.number) for record in (first, *others)])
                self.report.note(f"{what} {word} {numbers}", record=first)
        if self.unusual:
            gaps = " and ".join(repr(gap) for gap in sorted(self.unusual))
            first = next(record for record in self.records if any(gap in record.row for gap in _UNUSUAL_GAPS))
            self.report.note(f"{gaps} read as gaps", record=first)

    @cached_property
    def _stars_are_columns(self) -> bool:
        return not self.blank and len({len(record.row) for record in self.records}) == 1

    def _without_stars(self, row: int, text: bytes) -> bytes:
        if text.endswith(b"*"):
            _remember(row, self.final_stars)
            stripped = text.rstrip(b"*")
            text = stripped.ljust(len(text), b"-") if self._stars_are_columns else stripped
        if b"*" in text:
            _remember(row, self.inner_stars)
            text = text.replace(b"*", b"X")
        return text


def _remember(row: int, rows: list[int], limit: int = 7) -> None:
    """Add a row, unless more are known than a message will tell."""
    if row not in rows and len(rows) < limit:
        rows.append(row)


def _bad_character(record: Record, pieces: Iterable[Piece], known: set[str], report: Report) -> Exception:
    for line, before, piece in pieces:
        for i, character in enumerate(piece.decode("utf-8", "replace"), start=before + 1):
            if character not in known:
                where = f"record {record.number} {quoted(record.id)}, line {line}, column {i}"
                message = f"{where}: {character!r} is neither a residue nor a gap"
                return report.error(message, record=record, line=line, column=i)
    raise AssertionError(f"no bad character in {record}")
