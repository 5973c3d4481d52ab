"""`read_alignment`: A3M, A2M, FASTA, Stockholm, Clustal and plain rows to an `Alignment`."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice, takewhile
from typing import Any

from evoformer.features.alignment import Alignment
from evoformer.features.blocks import ClustalRecords, StockholmRecords, note_missing_ends, split_stockholm
from evoformer.features.fasta import FastaRecords, PlainRecords, chain_metadata, colabfold_chains, first_comment
from evoformer.features.records import Piece, Record, Records, Report, lines_of, listed
from evoformer.features.rows import a3m_matrix, aligned_matrix
from evoformer.features.sources import FORMAT_OF_SUFFIX, Source, format_suffix, read_source

# One of several alignments in a file: the number of its first line, and its text.
Part = tuple[int, bytes]
Parts = Callable[[], Iterator[Part]]  # all of them, anew at every call

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
    to_the_end = format in ("stockholm", "clustal")  # their rows come in blocks, whatever the text looks like
    if max_seqs is not None and max_seqs > 0 and query is None and not index and not to_the_end:
        enough = _end_of_rows(max_seqs)
    data, path = read_source(source, enough)
    report = Report(path)
    if format != "auto" and format not in _FORMATS:
        raise report.error(f"unknown format {format!r}, known are {listed(['auto', *_FORMATS], limit=9)}")
    if max_seqs is not None and max_seqs < 1:
        raise report.error(f"max_seqs must be at least 1, not {max_seqs}")

    parts, separator = partial(_split_at_nul, data), "NUL"
    first_part = next(parts(), None)
    if first_part is None:
        raise report.error("no sequences in file")
    found = _format_of(first_part, parts, path, format, report)
    if found == "stockholm":
        for first_line, text in parts():
            note_missing_ends(text, first_line, report)
        parts, separator = partial(_split_at_ends, data), "//"
    first_line, text = _chosen(parts, separator, index, found, report)

    comment = first_comment(text, first_line) if found == "a3m" else None
    chains = None if comment is None else colabfold_chains(comment[1])
    limit = max_seqs if query is None else None
    records = _records(text, first_line, found, report, limit, N_chain=1 if chains is None else len(chains[0]))
    if next(iter(records), None) is None:
        raise report.error("no sequences in file")
    if query is not None:
        records = _QueryFirst(records, query, report, max_seqs)
    if found == "a3m":
        rows = a3m_matrix(records, report, uppercase=uppercase)
    else:
        rows = aligned_matrix(records, report, fasta=found == "fasta")
    metadata: dict[str, Any] = {"format": found}
    if chains is not None and comment is not None:
        metadata |= chain_metadata(*chains, rows.msa, report, line=comment[0])
    report.close(strict=strict, stacklevel=2)
    return Alignment(rows.msa, rows.ids, rows.descriptions, rows.deletions, metadata, rows.ambiguous)


def _end_of_rows(max_seqs: int) -> Callable[[bytes], int | None]:
    """What tells from the beginning of a text where its first `max_seqs` rows end; None if it is to be read on."""

    def end_of_rows(text: bytes) -> int | None:
        start = len(text) - len(text.lstrip(b"\0 \t\n\v\f"))
        nul = text.find(b"\0", start)
        end = nul if nul >= 0 else text.rfind(b"\n") + 1  # the last line may go on
        family = _content(text[start:end])
        if family not in ("fasta", "plain"):
            return None
        rows = (_RECORD if family == "fasta" else _PLAIN_LINE).finditer(text, start, end)
        behind = next(islice(rows, max_seqs, None), None)
        return None if behind is None else behind.start()

    return end_of_rows


def _split_at_nul(data: bytes) -> Iterator[Part]:
    """The stretches between NULs that are not blank."""
    start, first_line = 0, 1
    while start <= len(data):
        end = data.find(b"\0", start)
        end = end if end >= 0 else len(data)
        part = data[start:end]
        if part and not part.isspace():
            yield first_line, part
        start = end + 1
        if start <= len(data):
            first_line += part.count(b"\n")


def _split_at_ends(data: bytes) -> Iterator[Part]:
    """The alignments of a Stockholm file."""
    for first_line, text in _split_at_nul(data):
        yield from split_stockholm(text, first_line)


def _format_of(first: Part, parts: Parts, path: str | None, format: str, report: Report) -> str:
    """The format to read: the content's, checked against the one asked for; A2M is called A3M from here on."""
    first_line, text = first
    family = _content(text)
    if format in ("stockholm", "clustal") and (family is None or (family == "plain" and b"\n" in text)):
        family = format
    if family == "clustal" and format == "stockholm" and not _starts_clustal(text):
        family = format
    if family is None:
        number, line = next((i, line) for i, line in lines_of(text, first_line) if line.strip())
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
    return "a3m" if named == "a3m" or any(_looks_like_a3m(text) for _, text in parts()) else "fasta"


def _starts_clustal(text: bytes) -> bool:
    return next(_uncommented(text)).upper().startswith(b"CLUSTAL")


def _uncommented(text: bytes) -> Iterator[bytes]:
    """The lines that are neither blank nor comments, without white space around them."""
    for _, line in lines_of(text):
        line = line.strip()
        if line and not line.startswith((b"#", b";")):
            yield line


def _looks_like_a3m(text: bytes) -> bool:
    """Whether there is HH-suite's or ColabFold's first line, or a lower-case letter in a row."""
    first = next(line.strip() for _, line in lines_of(text) if line.strip())
    if first.startswith(b"#A3M#") or colabfold_chains(first) is not None:
        return True
    rows = (line for _, line in lines_of(text) if not line.lstrip().startswith((b">", b"#", b";")))
    return any(line != line.upper() for line in rows)


def _content(text: bytes) -> str | None:
    """The format's family by the content: "fasta" (A3M as well), "stockholm", "clustal", "plain", or None."""
    stripped = (line.strip() for _, line in lines_of(text))
    head = takewhile(lambda line: not line or line.startswith(b"#"), stripped)
    if any(_STOCKHOLM_LINE.match(line) for line in head):
        return "stockholm"
    if b">" in text and any(line.lstrip().startswith(b">") for _, line in lines_of(text)):
        return "fasta"
    header, second = islice(chain(_uncommented(text), (b"", b"")), 2)
    if not header:
        return "fasta"
    if header.upper().startswith(b"CLUSTAL"):
        return "clustal"
    stripped = (line.strip() for _, line in lines_of(text))
    blank_follows = any(line == header for line in stripped) and next(stripped, None) == b""
    if header[:1].isalpha() and blank_follows and _BLOCK_ROW.fullmatch(second):
        return "clustal"
    return "plain" if _PLAIN_ROW.fullmatch(header) else None


def _chosen(parts: Parts, separator: str, index: int | None, found: str, report: Report) -> Part:
    """The alignment to read."""
    number = sum(1 for _ in parts())
    if not number:
        raise report.error("no sequences in file")
    if index is None and number > 1:
        widths = listed([str(_columns(part, found, report)) for part in islice(parts(), 6)])
        several = f"{number} alignments in one file, separated by {separator} ({widths} columns)"
        raise report.error(f"{several}; choose one by index=0 to index={number - 1}")
    if index is not None and not 0 <= index < number:
        raise report.error(f"there is no index={index} among the alignments 0 to {number - 1} of this file")
    return next(islice(parts(), index, None))


def _columns(part: Part, found: str, report: Report) -> int:
    first_line, text = part
    silent = Report(report.path)
    records = _records(text, first_line, found, silent, limit=1)
    if next(iter(records), None) is None:
        return 0
    rows = a3m_matrix(records, silent) if found == "a3m" else aligned_matrix(records, silent)
    return int(rows.msa.shape[1])


def _records(text: bytes, first_line: int, found: str, report: Report, limit: int | None, N_chain: int = 1) -> Records:
    """The records, `limit` at most."""
    if found == "stockholm":
        return StockholmRecords(text, first_line, report, limit)
    if found == "clustal":
        return ClustalRecords(text, first_line, report, limit)
    if found == "plain":
        return PlainRecords(text, first_line, limit)
    return FastaRecords(text, first_line, report, a3m=found == "a3m", limit=limit, N_chain=N_chain)


class _QueryFirst(Records):
    """The records, the first one whose residues are the query's moved to the front, `limit` at most."""

    def __init__(self, records: Records, query: str, report: Report, limit: int | None) -> None:
        self.records, self.limit = records, limit
        wanted = query.upper().encode()
        place = next((i for i, record in enumerate(records) if _residues(record) == wanted), None)
        if place is None:
            lengths = listed([str(len(_residues(record))) for record in islice(records, 6)])
            raise report.error(f"no sequence equals the query of {len(query)} residues; theirs are {lengths} long")
        self.place = place

    def __iter__(self) -> Iterator[Record]:
        others = (record for i, record in enumerate(self.records) if i != self.place)
        return islice(chain([self.records.at(self.place)], others), self.limit)

    def pieces(self, record: Record) -> Iterator[Piece]:
        """The stretches of one record's row."""
        return self.records.pieces(record)


def _residues(record: Record) -> bytes:
    """All residues of a record, insertions too, in upper case."""
    return record.row.translate(None, b"-._~*").upper()
