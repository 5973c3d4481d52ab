"""Records of Stockholm and Clustal files, whose rows stand in blocks: a name and a stretch of its row on each line.

Biopython reads both formats too, and the tests compare. It is not used here because it refuses much that programs
write (a consensus line without its last blanks, a header of another program, tabs, an empty annotation), and because
what it refuses it reports without the name or the line.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoformer.features.records import Piece, Record, Records, Report, lines_of, quoted

_STOCKHOLM_HEADER = re.compile(rb"#\s*STOCKHOLM|STOCKHOLM\s+[\d.]+$", re.IGNORECASE)
_STOCKHOLM_END = re.compile(rb"//[^\S\n]*(?=\n|\Z)")
_BLOCK_ROW = re.compile(rb"\S+\s+[A-Za-z.\-_~*]+(\s+\d+)?")
_CLUSTAL_CONSENSUS = re.compile(rb"[*:.\s]*")  # blank where nothing is conserved


def split_stockholm(text: bytes, first_line: int) -> Iterator[tuple[int, bytes]]:
    """The alignments of a Stockholm file, each as the number of its first line and its text, without its end (`//`).

    Stretches without a sequence do not count.
    """
    for number, part in _between_ends(text, first_line):
        if _has_row(part):
            yield number, part


def note_missing_ends(text: bytes, first_line: int, report: Report) -> None:
    """Note that a Stockholm file lacks its first header or its last terminator."""
    first: tuple[int, bytes] | None = None
    last = b""
    for number, last in _between_ends(text, first_line):
        if first is None and _has_row(last):
            first = number, last
    if _has_row(last):
        report.note("missing '//' at the end", line=first_line + text.count(b"\n"))
    if first is not None and not any(_STOCKHOLM_HEADER.match(line.strip()) for _, line in lines_of(first[1])):
        report.note("missing '# STOCKHOLM 1.0' at the beginning", line=first[0])


def _between_ends(text: bytes, first_line: int) -> Iterator[tuple[int, bytes]]:
    """What stands before, between and after the lines `//`, blank or not."""
    start = 0
    for end in _STOCKHOLM_END.finditer(text):
        line_start = text.rfind(b"\n", start, end.start()) + 1 or start
        if not text[line_start : end.start()].strip():
            yield first_line, text[start:line_start]
            first_line += text.count(b"\n", start, end.end()) + 1
            start = end.end() + 1
    yield first_line, text[start:]


def _has_row(text: bytes) -> bool:
    return any(line.strip() and not line.lstrip().startswith(b"#") for _, line in lines_of(text))


class BlockRecords(Records):
    """Records whose rows stand in blocks. What is kept of a line are two numbers, until its record is made.

    A line without a row, or a name that occurs twice in one block, is an error.

    Args:
        text: the alignment
        first_line: the number of its first line
        report: where errors and oddities go
        limit: how many records to read; lines of others are passed over
    """

    def __init__(self, text: bytes, first_line: int, report: Report, limit: int | None = None) -> None:
        self.text, self.first_line, self.report, self.limit = text, first_line, report, limit
        self.descriptions: dict[str, str] = {}
        self._starts, self._ends = self._grouped()

    def rows(self) -> Iterator[tuple[int, bytes] | None]:
        """Where each line with a row begins in the text, and the line without what follows the row; None ends a block.

        Raises:
            NotImplementedError: this is what the formats differ in.
        """
        raise NotImplementedError

    def _grouped(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where each line with a row begins, ordered by the record, and where each record ends in that list."""
        starts, names, blocks = array("q"), array("q"), array("i")
        known: set[bytes] = set()  # with a limit only
        block = 0
        for found in self.rows():
            if found is None:
                block += 1
                continue
            start, line = found
            name, *stretch = line.split(maxsplit=1)
            if self.limit is not None and name not in known:
                if len(known) == self.limit:
                    continue
                known.add(name)
            if not stretch:
                number, what = self._number(start), "a name and a row are expected"
                raise self.report.error(f"line {number}: {what}, not {quoted(_text(name))}", line=number)
            starts.append(start)
            names.append(hash(name))  # 64 bits: no two names are taken for one
            blocks.append(block)
        _, first, group = np.unique(np.frombuffer(names, np.int64), return_index=True, return_inverse=True)
        del names
        in_order = np.empty(len(first), np.int32)
        in_order[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
        record: NDArray[np.int32] = in_order[group]
        order = np.argsort(record, kind="stable")
        self._refuse_repeats(order, record, np.frombuffer(blocks, np.int32), starts)
        return np.frombuffer(starts, np.int64)[order], np.cumsum(np.bincount(record, minlength=len(first)))

    def _refuse_repeats(
        self, order: NDArray[np.int64], record: NDArray[np.int32], blocks: NDArray[np.int32], starts: Sequence[int]
    ) -> None:
        same = (np.diff(record[order]) == 0) & (np.diff(blocks[order]) == 0)
        if same.any():
            again = order[1:][same].min()
            before = order[:-1][same & (order[1:] == again)][0]
            name = self._line(starts[again]).split(maxsplit=1)[0]
            number = self._number(starts[again])
            lines = f"lines {self._number(starts[before])} and {number}"
            raise self.report.error(f"name {quoted(_text(name))} occurs twice in one block ({lines})", line=number)

    def __iter__(self) -> Iterator[Record]:
        start_line, counted = self.first_line, 0
        first = 0
        for number, end in enumerate(self._ends, start=1):
            row = bytearray()
            for place in self._starts[first:end]:
                name, stretch = self._line(place).split(maxsplit=1)
                row += stretch
            start = int(self._starts[first])
            if start >= counted:  # as in most files; else it would be counted from the beginning again and again
                start_line += self.text.count(b"\n", counted, start)
                counted = start
                line = start_line
            else:
                line = self._number(start)
            id = _text(name)
            yield Record(number, id, self.descriptions.get(id, id), line, bytes(row))
            first = end

    def pieces(self, record: Record) -> Iterator[Piece]:
        """The stretches of one record's row."""
        first = self._ends[record.number - 2] if record.number > 1 else 0
        for start in self._starts[first : self._ends[record.number - 1]]:
            line = self._line(start)
            name, stretch = line.split(maxsplit=1)
            before = line[: line.index(stretch, line.index(name) + len(name))]
            yield self._number(start), len(_text(before)), stretch

    def _number(self, start: int) -> int:
        return self.first_line + self.text.count(b"\n", 0, start)

    def _line(self, start: int) -> bytes:
        """The line that begins at a place, without what may follow the row."""
        end = self.text.find(b"\n", start)
        return self.text[start : end if end >= 0 else None]


class StockholmRecords(BlockRecords):
    """The records of one Stockholm alignment. Descriptions are the name and its `#=GS ... DE` lines."""

    def rows(self) -> Iterator[tuple[int, bytes] | None]:
        """As in `BlockRecords`; a block ends with a blank line. Descriptions are collected on the way."""
        descriptions: dict[str, Any] = {}
        start = 0
        for _, line in lines_of(self.text):
            text = line.strip()
            if text.startswith(b"#=GS"):
                fields = _text(text).split(maxsplit=3)
                if len(fields) == 4 and fields[2] == "DE":
                    descriptions.setdefault(fields[1], [fields[1]]).append(fields[3])
            elif not text:
                yield None
            elif not text.startswith(b"#") and not _STOCKHOLM_HEADER.match(text):
                yield start, text
            start += len(line)
        for name, words in descriptions.items():
            descriptions[name] = " ".join(words)
        self.descriptions = descriptions


class ClustalRecords(BlockRecords):
    """The records of a Clustal file after its header line. Consensus lines and residue counts are left out.

    A block ends with its consensus line or a blank one. Lines before the header may be comments, with `#` or `;`.
    A missing header is an oddity.
    """

    def rows(self) -> Iterator[tuple[int, bytes] | None]:
        """As in `BlockRecords`."""
        start, header = 0, True
        for number, line in lines_of(self.text, self.first_line):
            text = line.strip()
            if header and text and not text.startswith((b"#", b";")):
                header = False
                if is_headerless(self.text[start:]):
                    self.report.note("missing 'CLUSTAL' at the beginning", line=number)
                    yield start, _without_count(line)
            elif not header and _CLUSTAL_CONSENSUS.fullmatch(line):
                yield None
            elif not header:
                yield start, _without_count(line)
            start += len(line)

    def _line(self, start: int) -> bytes:
        return _without_count(super()._line(start))


def _without_count(line: bytes) -> bytes:
    *row, last = line.rsplit(maxsplit=1)
    return row[0] if row and last.isdigit() else line


def is_headerless(text: bytes) -> bool:
    """Whether the first line is a row: the next one has as many characters, or the name occurs again."""
    texts = (line.strip() for _, line in lines_of(text) if not _CLUSTAL_CONSENSUS.fullmatch(line))
    first = next(texts, b"")
    if first.upper().startswith(b"CLUSTAL") or not _BLOCK_ROW.fullmatch(first):
        return False
    name, row, *_ = first.split(maxsplit=2)
    second = next(texts, None)
    if second is None:
        return True
    fields = second.split(maxsplit=2)
    return (len(fields) > 1 and len(fields[1]) == len(row)) or any(
        text.split(maxsplit=1)[0] == name for text in (second, *texts)
    )


def _text(characters: bytes) -> str:
    return characters.decode("utf-8", "replace")
