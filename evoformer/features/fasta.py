"""Records of A3M, A2M and FASTA files and of plain rows, and what ColabFold's headers say."""

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoformer.constants import GAP
from evoformer.features.records import Piece, Record, Records, Report, lines_of, quoted

# HH-suite keeps secondary structure and solvent accessibility in records of these names.
_A3M_ANNOTATION = re.compile(rb"(ss|sa|aa)_")
_FASTA_ANNOTATION = re.compile(rb"(ss|sa|aa)_(pred|conf|dssp)\b")


class FastaRecords(Records):
    """The records of an A3M or FASTA file.

    Rows may be wrapped. Lines that begin with `#`, and in FASTA with `;`, are comments. HH-suite's annotation
    records are left out. A row before the first header, or a header without a row, is an error.

    Args:
        text: the alignment
        first_line: the number of its first line
        report: where errors go
        a3m: whether to read it as A3M or as FASTA
        limit: how many records to read
        N_chain: how many chains ColabFold's header tells
    """

    def __init__(
        self, text: bytes, first_line: int, report: Report, *, a3m: bool, limit: int | None = None, N_chain: int = 1
    ) -> None:
        self.text, self.first_line, self.report = text, first_line, report
        self.annotation = _A3M_ANNOTATION if a3m else _FASTA_ANNOTATION
        self.comment = b"#" if a3m else b"#;"
        self.limit, self.N_chain = limit, N_chain

    def __iter__(self) -> Iterator[Record]:
        return islice(self._all(), self.limit)

    def _all(self) -> Iterator[Record]:
        header: bytes | None = None
        header_line = row_line = N_record = 0
        row: bytes | bytearray = b""
        comment, is_annotation = self.comment, self.annotation.match
        for number, line in chain(lines_of(self.text, self.first_line), [(0, b">")]):  # which ends the last record
            text = line.strip()
            first = text[:1]
            if first == b">":
                if header is not None:
                    N_record += 1
                    yield self._record(N_record, header, header_line, row, row_line)
                header, header_line, row, row_line = text[1:].strip(), number, b"", number
                if is_annotation(header):
                    header = None
            elif not first or first in comment:
                continue
            elif not header_line:
                raise self.report.error(f"line {number}: a row before the first header ('>')", line=number)
            elif not row:
                row, row_line = text, number
            else:
                row = bytearray(row) if isinstance(row, bytes) else row
                row += text

    def _record(self, number: int, header: bytes, header_line: int, row: bytes | bytearray, row_line: int) -> Record:
        description = header.decode("utf-8", "replace") if header else f"sequence_{number - 1}"
        name = description
        if len(words := header.split(maxsplit=1)) > 1:
            name = words[0].decode("utf-8", "replace")
        if self.N_chain > 1:
            name = _both_halves(description, self.N_chain) or name
        record = Record(number, name, description, row_line, bytes(row))
        if not row:
            message = f"record {number} {quoted(name)} has no residues (line {header_line})"
            raise self.report.error(message, record=record)
        return record

    def pieces(self, record: Record) -> Iterator[Piece]:
        """The stretches of one record's row, which are lines."""
        for number, line in lines_of(self.text, self.first_line):
            first = line.lstrip()[:1]
            if number > record.line and first == b">":
                return
            if number >= record.line and first and first not in self.comment:
                yield number, 0, line


class PlainRecords(Records):
    """The rows of a file without headers, named `sequence_0`, ...; lines that begin with `#` or `;` are comments.

    Args:
        text: the alignment
        first_line: the number of its first line
        limit: how many records to read
    """

    def __init__(self, text: bytes, first_line: int, limit: int | None = None) -> None:
        self.text, self.first_line, self.limit = text, first_line, limit

    def __iter__(self) -> Iterator[Record]:
        return islice(self._all(), self.limit)

    def _all(self) -> Iterator[Record]:
        place = 0
        for number, line in lines_of(self.text, self.first_line):
            text = line.strip()
            if text and text[:1] not in b"#;":
                name = f"sequence_{place}"
                place += 1
                yield Record(place, name, name, number, text)

    def pieces(self, record: Record) -> Iterator[Piece]:
        """The record's line."""
        line = next(line for number, line in lines_of(self.text, self.first_line) if number == record.line)
        yield record.line, 0, line


def first_comment(text: bytes, first_line: int) -> tuple[int, bytes] | None:
    """The first line that begins with `#` before the first header, and its number."""
    for number, line in lines_of(text, first_line):
        line = line.strip()
        if line.startswith(b"#"):
            return number, line
        if line.startswith(b">"):
            break
    return None


def colabfold_chains(comment: bytes) -> tuple[list[int], list[int]] | None:
    """The lengths of the different chains and how many copies there are of each, if a comment is ColabFold's.

    That is their lengths, a tab, and the numbers of copies, both with commas in between.
    """
    fields = comment[1:].split()
    if not comment.startswith(b"#") or len(fields) != 2:
        return None
    lengths, copies = (field.split(b",") for field in fields)
    if len(lengths) != len(copies) or not all(number.isdigit() and len(number) < 10 for number in lengths + copies):
        return None
    return [*map(int, lengths)], [*map(int, copies)]


def _both_halves(description: str, N_chain: int) -> str:
    """The ids of all parts of a complex's row, joined by tabs.

    ColabFold joins the headers of paired hits by tabs, and MMseqs2 puts tabs before each hit's numbers.
    """
    fields = description.split("\t")
    if len(fields) > N_chain:
        fields = [field for i, field in enumerate(fields) if i == 0 or not _is_number(field)]
    return "\t".join(field.split(maxsplit=1)[0] for field in fields if field.strip())


def chain_metadata(
    lengths: list[int], copies: list[int], msa: NDArray[np.uint8], report: Report, *, line: int
) -> dict[str, Any]:
    """ColabFold's chains as metadata: `chain_lengths`, `copies`, and `row_coverage` [N_seq, N_chain].

    `line` is the header's number.
    """
    if sum(lengths) != msa.shape[1] or 0 in lengths:
        promised = "+".join(str(length) for length in lengths)
        message = f"the header (line {line}) promises chains of {promised} residues, but the query has {msa.shape[1]}"
        raise report.error(message, line=line)
    starts = np.cumsum([0, *lengths[:-1]])
    coverage = np.logical_or.reduceat(msa != GAP, starts, axis=1)
    return {"chain_lengths": lengths, "copies": copies, "row_coverage": coverage}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
