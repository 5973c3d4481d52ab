"""Rows of characters to letter numbers and deletions, for formats with insertions in lower case and for the others."""

import string
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evoformer.constants import AMBIGUOUS, GAP, MSA_ALPHABET, UNKNOWN
from evoformer.features.alignment import SparseDeletions
from evoformer.features.records import Record, Report, listed

_INSERTION = 254
_OTHER = 255  # a character that no row may have
_UNUSUAL_GAPS = b"_~"


def _letter_table() -> NDArray[np.uint8]:
    table = np.full(256, _OTHER, np.uint8)
    for letter in string.ascii_uppercase:
        table[ord(letter)] = MSA_ALPHABET.index(AMBIGUOUS.get(letter, letter))
    for gap in b"-" + _UNUSUAL_GAPS:
        table[gap] = GAP
    return table


_A3M = _letter_table()
_A3M[np.frombuffer(string.ascii_lowercase.encode(), np.uint8)] = _INSERTION
_ALIGNED = _letter_table()
_ALIGNED[ord(".")] = GAP


def a3m_matrix(
    records: Sequence[Record], report: Report, *, uppercase: bool = False
) -> tuple[NDArray[np.uint8], SparseDeletions]:
    """Rows where lower case is an insertion, upper case and `-` a column, and `.` nothing (A3M and A2M).

    Args:
        records: the sequences, the query first
        report: where errors and oddities go
        uppercase: read lower case as columns

    Returns:
        letters [N_seq, N_res]; the residues inserted before each column, those after the last one left out
    """
    rows = [record.row.replace(b".", b"") for record in records]
    if uppercase:
        rows = [row.upper() for row in rows]
    rows = _without_stars(rows, records, report, as_gaps=False)
    codes, ends = _coded(rows, records, report, _A3M, blank=".")

    inserted = np.flatnonzero(codes == _INSERTION)
    owner = np.searchsorted(ends, inserted, side="right")
    widths = np.diff(ends, prepend=0) - np.bincount(owner, minlength=len(rows))
    N_res = int(widths[0])
    query = codes[: ends[0]]
    if not (query <= UNKNOWN).any():
        if (query == _INSERTION).any():
            hint = "; uppercase=True reads lower case as match letters"
            raise report.error(f"query has no upper-case (match) letters: {records[0]}{hint}", record=records[0])
        raise report.error(f"query has no residues, only gaps: {records[0]}", record=records[0])
    wrong = np.flatnonzero(widths != N_res)
    if len(wrong):
        record = records[wrong[0]]
        raise report.error(f"{record} has {widths[wrong[0]]} match columns, expected {N_res}", record=record)

    msa = codes[codes != _INSERTION].reshape(len(rows), N_res)
    column = inserted - np.arange(len(inserted)) - owner * N_res  # the match letters before it in its row
    inside = column < N_res
    cells, counts = np.unique(owner[inside] * N_res + column[inside], return_counts=True)
    gaps = np.flatnonzero(msa[0] == GAP)
    if len(gaps):
        msa[0, gaps] = UNKNOWN
        where = ("column " if len(gaps) == 1 else "columns ") + listed([str(gap) for gap in gaps])
        report.note(
            f"query has a gap at {where} (counted from 0), read as X; aligned FASTA with gaps in the query needs "
            "format='fasta'"
        )
    return msa, (cells // N_res, cells % N_res, counts.astype(np.int32))


def aligned_matrix(records: Sequence[Record], report: Report) -> tuple[NDArray[np.uint8], SparseDeletions]:
    """Rows of one length, in any case, `-` and `.` both gaps (FASTA, Stockholm, Clustal, plain rows).

    Columns where the query has a gap are removed; the residues that other rows have there are insertions.

    Args:
        records: the sequences, the query first
        report: where errors and oddities go

    Returns:
        letters [N_seq, N_res]; the residues removed before each column that is left, those after the last one left out
    """
    rows = [record.row.upper() for record in records]
    rows = _without_stars(rows, records, report, as_gaps=len({len(row) for row in rows}) == 1)
    codes, ends = _coded(rows, records, report, _ALIGNED)

    widths = np.diff(ends, prepend=0)
    wrong = np.flatnonzero(widths != widths[0])
    if len(wrong):
        record = records[wrong[0]]
        distinct = listed([str(width) for width in dict.fromkeys(widths.tolist())])
        first = f"{record} is the first to differ from the query"
        raise report.error(f"not an alignment, rows have {distinct} columns; {first}", record=record)
    columns = codes.reshape(len(rows), -1)
    kept = np.flatnonzero(columns[0] != GAP)
    if not len(kept):
        raise report.error(f"query has no residues, only gaps: {records[0]}", record=records[0])

    removed_before = np.diff(kept, prepend=-1) - 1
    deletions = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32))]
    for column in np.flatnonzero(removed_before):
        removed = columns[:, kept[column] - removed_before[column] : kept[column]]
        counts = np.count_nonzero(removed != GAP, axis=1)
        owner = np.flatnonzero(counts)
        deletions.append((owner, np.full(len(owner), column), counts[owner].astype(np.int32)))
    owners, places, numbers = zip(*deletions, strict=True)
    return columns[:, kept], (np.concatenate(owners), np.concatenate(places), np.concatenate(numbers))


def _without_stars(rows: list[bytes], records: Sequence[Record], report: Report, *, as_gaps: bool) -> list[bytes]:
    """Stop codons: those that end a row are removed (or, where each is a column, made gaps), others are X."""
    final = [i for i, row in enumerate(rows) if row.endswith(b"*")]
    for i in final:
        stripped = rows[i].rstrip(b"*")
        rows[i] = stripped.ljust(len(rows[i]), b"-") if as_gaps else stripped
    inner = [i for i, row in enumerate(rows) if b"*" in row]
    for i in inner:
        rows[i] = rows[i].replace(b"*", b"X")
    if final:
        report.note(f"trailing '*' removed from {_numbers(final, records)}")
    if inner:
        report.note(f"'*' read as X in {_numbers(inner, records)}")
    return rows


def _coded(
    rows: list[bytes], records: Sequence[Record], report: Report, table: NDArray[np.uint8], blank: str = ""
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All rows' letter numbers in one array, and where each row ends. `blank` was taken out of the file's rows."""
    characters = b"".join(rows)
    codes = table[np.frombuffer(characters, np.uint8)]
    ends = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
    bad = np.flatnonzero(codes == _OTHER)
    if len(bad):
        known = set(string.ascii_letters + "*" + string.whitespace + blank)
        known |= {chr(i) for i in np.flatnonzero(table != _OTHER)}
        raise _bad_character(records[np.searchsorted(ends, bad[0], side="right")], known, report)
    unusual = [chr(gap) for gap in _UNUSUAL_GAPS if gap in characters]
    if unusual:
        report.note(" and ".join(repr(gap) for gap in unusual) + " read as gaps")
    return codes, ends


def _bad_character(record: Record, known: set[str], report: Report) -> Exception:
    for line, before, piece in record.pieces:
        for i, character in enumerate(piece.decode("utf-8", "replace"), start=before + 1):
            if character not in known:
                where = f"record {record.number} {record.id!r}, line {line}, column {i}"
                message = f"{where}: {character!r} is neither a residue nor a gap"
                return report.error(message, record=record, line=line, column=i)
    raise AssertionError(f"no bad character in {record}")


def _numbers(places: list[int], records: Sequence[Record]) -> str:
    word = "record" if len(places) == 1 else "records"
    return f"{word} {listed([str(records[place].number) for place in places])}"
