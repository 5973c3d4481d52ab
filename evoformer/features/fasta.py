"""Records of A3M, A2M and FASTA files and of plain rows, and what ColabFold's headers say."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoformer.constants import GAP
from evoformer.features.records import Record, Report, quoted

# HH-suite keeps secondary structure and solvent accessibility in records of these names.
_A3M_ANNOTATION = re.compile(rb"(ss|sa|aa)_")
_FASTA_ANNOTATION = re.compile(rb"(ss|sa|aa)_(pred|conf|dssp)\b")
# ColabFold's first line: the lengths of the different chains, a tab, how many copies there are of each.
_COLABFOLD = re.compile(rb"#\s*(\d{1,9}(?:,\d{1,9})*)\s+(\d{1,9}(?:,\d{1,9})*)\s*")


def read_records(
    lines: list[bytes], first_line: int, report: Report, *, a3m: bool, limit: int | None = None
) -> tuple[list[Record], list[tuple[int, bytes]]]:
    """The records of an A3M or FASTA file, and its comment lines with their numbers.

    Rows may be wrapped. Lines that begin with `#`, and in FASTA with `;`, are comments. HH-suite's annotation
    records are left out.

    Args:
        lines: the lines without their ends
        first_line: the number of the first one
        report: where errors go
        a3m: whether to read the file as A3M or as FASTA
        limit: how many records to read

    Raises:
        AlignmentError: for a row before the first header, or a header without a row.
    """
    records: list[Record] = []
    comments: list[tuple[int, bytes]] = []
    annotation = _A3M_ANNOTATION if a3m else _FASTA_ANNOTATION
    owner = Record(0, "", "", first_line)  # the record that the next row belongs to
    pieces: list[tuple[int, int, bytes]] | None = None  # its rows so far
    for number, line in enumerate(lines, start=first_line):
        text = line.strip()
        if not text:
            continue
        first = text[:1]
        if first == b">":
            header = text[1:].strip()
            if pieces:
                owner.pieces = tuple(pieces)  # which, unlike lists, garbage collection need not visit
            pieces = []
            owner = Record(0, "", "", number)  # an annotation's, left out
            if not annotation.match(header):
                if len(records) == limit:
                    break
                header = header or b"sequence_%d" % len(records)
                name = header.split(maxsplit=1)[0].decode("utf-8", "replace")
                description = header.decode("utf-8", "replace")
                owner = Record(len(records) + 1, name, description, number)
                records.append(owner)
        elif first == b"#" or (first == b";" and not a3m):
            comments.append((number, text))
        elif pieces is None:
            raise report.error(f"line {number}: a row before the first header ('>')", line=number)
        else:
            pieces.append((number, 0, line))
    if pieces:
        owner.pieces = tuple(pieces)
    for record in records:
        if not record.pieces:
            raise report.error(
                f"record {record.number} {quoted(record.id)} has no residues (line {record.line})", record=record
            )
        record.line = record.pieces[0][0]
    return records, comments


def read_plain_rows(lines: list[bytes], first_line: int, limit: int | None = None) -> list[Record]:
    """A record a line, as PSICOV and other contact predictors have them. Lines with `#` or `;` first are comments."""
    records: list[Record] = []
    for number, line in enumerate(lines, start=first_line):
        if len(records) == limit:
            break
        if line.strip() and not line.lstrip().startswith((b"#", b";")):
            name = f"sequence_{len(records)}"
            records.append(Record(len(records) + 1, name, name, number, [(number, 0, line)]))
    return records


def colabfold_chains(comment: bytes) -> tuple[list[int], list[int]] | None:
    """The lengths and the copies of the chains, if the file's first comment is ColabFold's."""
    found = _COLABFOLD.fullmatch(comment)
    if found is None:
        return None
    lengths, copies = ([int(number) for number in group.split(b",")] for group in found.groups())
    return (lengths, copies) if len(lengths) == len(copies) else None


def name_both_halves(records: list[Record], N_chain: int) -> None:
    """Give the rows of a complex the ids of all their parts, joined by tabs.

    ColabFold joins the headers of paired hits by tabs, and MMseqs2 puts tabs before each hit's numbers.
    """
    for record in records:
        fields = record.description.split("\t")
        if len(fields) > N_chain:
            fields = [field for i, field in enumerate(fields) if i == 0 or not _is_number(field)]
        record.id = "\t".join(field.split(maxsplit=1)[0] for field in fields if field.strip()) or record.id


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
