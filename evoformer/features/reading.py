"""`read_alignment`: A3M, A2M, FASTA, Stockholm, Clustal and plain rows to an `Alignment`."""

import re
from collections.abc import Callable
from itertools import islice, takewhile
from typing import Any

from evoformer.features.alignment import Alignment
from evoformer.features.blocks import read_clustal, read_stockholm, split_stockholm
from evoformer.features.fasta import (
    chain_metadata,
    colabfold_chains,
    name_both_halves,
    read_plain_rows,
    read_records,
)
from evoformer.features.records import Record, Report, listed
from evoformer.features.rows import a3m_matrix, aligned_matrix
from evoformer.features.sources import FORMAT_OF_SUFFIX, Source, format_suffix, read_source

# Every name that `format` may have, and how errors call it. A2M is A3M with dots.
_FORMATS = {
    "a3m": "FASTA/A3M",
    "a2m": "FASTA/A3M",
    "fasta": "FASTA/A3M",
    "stockholm": "Stockholm",
    "clustal": "Clustal",
    "plain": "plain rows",
}

# HH-suite's annotation records are no rows.
_RECORD = re.compile(rb"^[^\S\n]*>(?![^\S\n]*(?:ss|sa|aa)_)", re.MULTILINE)
_PLAIN_LINE = re.compile(rb"^[^\S\n]*[^#;\s]", re.MULTILINE)
_PLAIN_ROW = re.compile(rb"[A-Za-z.\-_~*]+")
_BLOCK_ROW = re.compile(rb"\S+\s+[A-Za-z.\-_~*]+(\s+\d+)?")
_STOCKHOLM_LINE = re.compile(rb"#=G[FSRC]|#\s*STOCKHOLM\b", re.IGNORECASE)


def read_alignment(
    source: Source,
    *,
    format: str = "auto",
    index: int | None = None,
    query: str | None = None,
    max_seqs: int | None = None,
    uppercase: bool = False,
    strict: bool = False,
) -> Alignment:
    r"""Read a multiple sequence alignment, whose first row is the query.

    What becomes a column is the format's matter. A3M and A2M: upper case and `-`; lower case is an insertion and `.`
    is nothing; a gap in the query is an oddity, and becomes X. FASTA, Stockholm, Clustal and plain rows: the columns
    in which the query has a residue, in either case; what other rows have elsewhere are insertions; `.` is a gap.
    Insertions are counted before a column, as AlphaFold does, and those after the last one are not counted. U is read
    as C, B as D, Z as E, J and O as X; `Alignment.letters` still has them.

    Args:
        source: a path; an open file; bytes; text, which is a string with a line end in it; or a list of lines.
            gzip, xz and bzip2 are recognised by their first bytes
        format: "a3m", "a2m", "fasta", "stockholm", "clustal", "plain" (a row a line), or "auto": the content
            decides. Between A3M and FASTA the suffix does (`.a3m`, `.a2m`; `.fa`, `.fasta`, `.fas`, `.mfa`); with
            another or none, a lower-case letter in the rows read or ColabFold's header means A3M. Stockholm and Clustal
            asked for by name may lack their header
        index: which one, from 0, of several alignments in a file, separated by NUL (MMseqs2) or `//` (Stockholm)
        query: the sequence, without gaps, of the row to make the query, if that is not the first one
        max_seqs: how many rows to read, the query included. Nothing behind them is looked at: neither errors nor
            oddities, nor further alignments in the file. A3M, FASTA and plain rows are read and decompressed no
            further than needed, unless `query` or a later `index` is asked for
        uppercase: read the lower-case letters of A3M as columns
        strict: make an error of what would be a warning

    Returns:
        The alignment. `metadata` holds "format", and with ColabFold's header "chain_lengths", "copies" and
        "row_coverage" (bool [N_seq, N_chain])

    Raises:
        AlignmentError: for whatever is not an alignment, with the file and, where known, record, line and column.

    Warns:
        AlignmentWarning: once a file, if it was read but has oddities: `*`, `_` or `~` in rows, a gap in an A3M
            query, a Stockholm file without its end.
    """
    enough = None
    if max_seqs is not None and max_seqs > 0 and query is None and not index:
        enough = _end_of_rows(max_seqs)
    data, path = read_source(source, enough)
    report = Report(path)
    if format != "auto" and format not in _FORMATS:
        raise report.error(f"unknown format {format!r}, known are {listed(['auto', *_FORMATS], limit=9)}")
    if max_seqs is not None and max_seqs < 1:
        raise report.error(f"max_seqs must be at least 1, not {max_seqs}")

    parts, separator = _split_at_nul(data), "NUL"
    del data  # the lines are a copy
    if not parts:
        raise report.error("no sequences in file")
    found = _format_of(parts, path, format, report)
    if found == "stockholm":
        parts = [alignment for start, lines in parts for alignment in split_stockholm(lines, start, report)]
        separator = "//"
    if not parts:
        raise report.error("no sequences in file")
    first_line, lines = parts[_choose(parts, separator, index, found, report)]

    records, comments = _records(lines, first_line, found, report, max_seqs if query is None else None)
    if not records:
        raise report.error("no sequences in file")
    chains = colabfold_chains(comments[0][1]) if comments and found == "a3m" else None
    if chains is not None and len(chains[0]) > 1:
        name_both_halves(records, N_chain=len(chains[0]))
    if query is not None:
        records = _query_first(records, query, report)[:max_seqs]
    if found == "a3m":
        msa, deletions, ambiguous = a3m_matrix(records, report, uppercase=uppercase)
    else:
        msa, deletions, ambiguous = aligned_matrix(records, report, fasta=found == "fasta")
    metadata: dict[str, Any] = {"format": found}
    if chains is not None:
        metadata |= chain_metadata(*chains, msa, report, line=comments[0][0])
    report.close(strict=strict, stacklevel=2)
    ids, descriptions = [record.id for record in records], [record.description for record in records]
    return Alignment(msa, ids, descriptions, deletions, metadata, ambiguous)


def _end_of_rows(max_seqs: int) -> Callable[[bytes], int | None]:
    """What tells from the beginning of a text where its first `max_seqs` rows end; None if it is to be read on."""

    def end_of_rows(text: bytes) -> int | None:
        start = len(text) - len(text.lstrip(b"\0 \t\n\v\f"))
        nul = text.find(b"\0", start)
        end = nul if nul >= 0 else text.rfind(b"\n") + 1  # the last line may go on
        family = _content(text[start:end].split(b"\n"))
        if family not in ("fasta", "plain"):
            return None
        rows = (_RECORD if family == "fasta" else _PLAIN_LINE).finditer(text, start, end)
        behind = next(islice(rows, max_seqs, None), None)
        return None if behind is None else behind.start()

    return end_of_rows


def _split_at_nul(data: bytes) -> list[tuple[int, list[bytes]]]:
    """The stretches between NULs that are not blank: the number of the first line, and the lines."""
    parts = []
    first_line = 1
    for part in data.split(b"\0"):
        if part.strip():
            parts.append((first_line, part.split(b"\n")))
        first_line += part.count(b"\n")
    return parts


def _format_of(parts: list[tuple[int, list[bytes]]], path: str | None, format: str, report: Report) -> str:
    """The format to read: the content's, checked against the one asked for; A2M is called A3M from here on."""
    first_line, lines = parts[0]
    family = _content(lines)
    if format in ("stockholm", "clustal") and (family is None or (family == "plain" and len(lines) > 1)):
        family = format
    if family == "clustal" and format == "stockholm" and not _starts_clustal(lines):
        family = format
    if family is None:
        number, line = next((i, line) for i, line in enumerate(lines, start=first_line) if line.strip())
        start = line.strip()[:40].decode("utf-8", "replace")
        known = "A3M, FASTA, Stockholm, Clustal or plain rows"
        raise report.error(f"line {number}: {start!r} does not begin {known}", line=number)
    if format != "auto":
        if _FORMATS[format] != _FORMATS[family]:
            raise report.error(f"content is {_FORMATS[family]}, not {_FORMATS[format]}; format='auto' reads it")
        return "a3m" if format == "a2m" else format
    named = FORMAT_OF_SUFFIX.get(format_suffix(path))
    if family != "fasta" or named == "fasta":
        return family
    return "a3m" if named == "a3m" or any(_looks_like_a3m(lines) for _, lines in parts) else "fasta"


def _starts_clustal(lines: list[bytes]) -> bool:
    texts = (line.strip() for line in lines)
    return next(text for text in texts if text and not text.startswith((b"#", b";"))).upper().startswith(b"CLUSTAL")


def _looks_like_a3m(lines: list[bytes]) -> bool:
    """Whether there is HH-suite's or ColabFold's first line, or a lower-case letter in a row."""
    first = next(line.strip() for line in lines if line.strip())
    if first.startswith(b"#A3M#") or colabfold_chains(first) is not None:
        return True
    rows = (line for line in lines if not line.lstrip().startswith((b">", b"#", b";")))
    return any(line != line.upper() for line in rows)


def _content(lines: list[bytes]) -> str | None:
    """The format's family by the content: "fasta" (A3M as well), "stockholm", "clustal", "plain", or None."""
    stripped = [line.strip() for line in lines]
    texts = [text for text in stripped if text]
    if any(_STOCKHOLM_LINE.match(text) for text in takewhile(lambda text: text.startswith(b"#"), texts)):
        return "stockholm"
    if any(text[:1] == b">" for text in texts):
        return "fasta"
    texts = [text for text in texts if not text.startswith((b"#", b";"))]
    if not texts:
        return "fasta"
    header = texts[0]
    if header.upper().startswith(b"CLUSTAL"):
        return "clustal"
    blank_follows = stripped[stripped.index(header) + 1 :][:1] == [b""]
    if header[:1].isalpha() and blank_follows and len(texts) > 1 and _BLOCK_ROW.fullmatch(texts[1]):
        return "clustal"
    return "plain" if _PLAIN_ROW.fullmatch(header) else None


def _choose(parts: list[tuple[int, list[bytes]]], separator: str, index: int | None, found: str, report: Report) -> int:
    """The number of the alignment to read."""
    if index is None and len(parts) > 1:
        widths = listed([str(_columns(part, found, report)) for part in parts[:6]])
        several = f"{len(parts)} alignments in one file, separated by {separator} ({widths} columns)"
        raise report.error(f"{several}; choose one by index=0 to index={len(parts) - 1}")
    if index is not None and not 0 <= index < len(parts):
        raise report.error(f"there is no index={index} among the alignments 0 to {len(parts) - 1} of this file")
    return index or 0


def _columns(part: tuple[int, list[bytes]], found: str, report: Report) -> int:
    first_line, lines = part
    silent = Report(report.path)
    records, _ = _records(lines, first_line, found, silent, limit=1)
    if not records:
        return 0
    matrix = a3m_matrix(records[:1], silent) if found == "a3m" else aligned_matrix(records[:1], silent)
    return int(matrix[0].shape[1])


def _records(
    lines: list[bytes], first_line: int, found: str, report: Report, limit: int | None
) -> tuple[list[Record], list[tuple[int, bytes]]]:
    """The records, `limit` at most, and the comment lines of A3M and FASTA with their numbers."""
    if found == "stockholm":
        return read_stockholm(lines, first_line, report, limit), []
    if found == "clustal":
        return read_clustal(lines, first_line, report, limit), []
    if found == "plain":
        return read_plain_rows(lines, first_line, limit), []
    return read_records(lines, first_line, report, a3m=found == "a3m", limit=limit)


def _query_first(records: list[Record], query: str, report: Report) -> list[Record]:
    """The records, the first one whose residues are the query's moved to the front."""
    wanted = query.upper().encode()
    place = next((i for i, record in enumerate(records) if _residues(record) == wanted), None)
    if place is None:
        lengths = listed([str(len(_residues(record))) for record in records])
        raise report.error(f"no sequence equals the query of {len(query)} residues; theirs are {lengths} long")
    return [records[place], *records[:place], *records[place + 1 :]]


def _residues(record: Record) -> bytes:
    """All residues of a record, insertions too, in upper case."""
    return record.row.translate(None, b"-._~*").upper()
