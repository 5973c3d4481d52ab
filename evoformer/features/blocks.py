"""Records of Stockholm and Clustal files, whose rows stand in blocks: a name and a stretch of its row on each line.

Biopython reads both formats too, and the tests compare. It is not used here because it refuses much that programs
write (a consensus line without its last blanks, a header of another program, tabs, an empty annotation), and because
what it refuses it reports without the name or the line.
"""

import re

from evoformer.features.records import Record, Report, quoted

_STOCKHOLM_HEADER = re.compile(rb"#\s*STOCKHOLM|STOCKHOLM\s+[\d.]+$", re.IGNORECASE)
_BLOCK_ROW = re.compile(rb"\S+\s+[A-Za-z.\-_~*]+(\s+\d+)?")
_CLUSTAL_CONSENSUS = re.compile(rb"[*:.\s]*")  # blank where nothing is conserved


def split_stockholm(lines: list[bytes], first_line: int, report: Report) -> list[tuple[int, list[bytes]]]:
    """The alignments of a Stockholm file, each as the number of its first line and its lines.

    A missing terminator (`//`) or header is an oddity. Stretches without a sequence do not count.
    """
    parts: list[tuple[int, list[bytes]]] = []
    part: list[bytes] = []
    for number, line in enumerate(lines, start=first_line):
        if line.strip() == b"//":
            parts.append((number - len(part), part))
            part = []
        else:
            part.append(line)
    if _has_row(part):
        report.note("missing '//' at the end", line=first_line + len(lines) - 1)
        parts.append((first_line + len(lines) - len(part), part))
    parts = [(start, part) for start, part in parts if _has_row(part)]
    if parts and not any(_STOCKHOLM_HEADER.match(line.strip()) for line in parts[0][1]):
        report.note("missing '# STOCKHOLM 1.0' at the beginning", line=parts[0][0])
    return parts


def read_stockholm(lines: list[bytes], first_line: int, report: Report, limit: int | None = None) -> list[Record]:
    """The records of one Stockholm alignment. Descriptions are the name and its `#=GS ... DE` lines.

    Lines of other records than the first `limit` ones are left out.

    Raises:
        AlignmentError: for a line without a row, or a name that occurs twice in one block.
    """
    blocks = _Blocks(report, limit)
    descriptions: dict[str, str] = {}
    for number, line in enumerate(lines, start=first_line):
        text = line.strip()
        if text.startswith(b"#=GS"):
            fields = text.decode("utf-8", "replace").split(maxsplit=3)
            if len(fields) == 4 and fields[2] == "DE":
                descriptions[fields[1]] = descriptions.get(fields[1], fields[1]) + " " + fields[3]
        elif not text:
            blocks.end()
        elif not text.startswith(b"#") and not _STOCKHOLM_HEADER.match(text):
            blocks.add(number, line)
    for record in blocks.records:
        record.description = descriptions.get(record.id, record.id)
    return blocks.records


def read_clustal(lines: list[bytes], first_line: int, report: Report, limit: int | None = None) -> list[Record]:
    """The records of a Clustal file after its header line. Consensus lines and residue counts are left out.

    A block ends with its consensus line or a blank one. Lines before the header may be comments, with `#` or `;`.
    A missing header is an oddity. Lines of other records than the first `limit` ones are left out.

    Raises:
        AlignmentError: for a line without a row, or a name that occurs twice in one block.
    """
    blocks = _Blocks(report, limit)
    not_first = (not text or text.startswith((b"#", b";")) for text in map(bytes.strip, lines))
    first = next((i for i, skipped in enumerate(not_first) if not skipped), len(lines))
    if is_headerless(lines[first:]):
        report.note("missing 'CLUSTAL' at the beginning", line=first_line + first)
    else:
        first += 1
    for number, line in enumerate(lines[first:], start=first_line + first):
        if _CLUSTAL_CONSENSUS.fullmatch(line):
            blocks.end()
        else:
            *row, last = line.rsplit(maxsplit=1)
            blocks.add(number, row[0] if row and last.isdigit() else line)
    return blocks.records


def is_headerless(lines: list[bytes]) -> bool:
    """Whether the first line is a row: the next one has as many characters, or the name occurs again."""
    texts = [line.strip() for line in lines if not _CLUSTAL_CONSENSUS.fullmatch(line)]
    if not texts or texts[0].upper().startswith(b"CLUSTAL") or not _BLOCK_ROW.fullmatch(texts[0]):
        return False
    (name, row, *_), *others = [text.split(maxsplit=2) for text in texts]
    if not others:
        return True
    return (len(others[0]) > 1 and len(others[0][1]) == len(row)) or any(fields[0] == name for fields in others)


class _Blocks:
    """Records collected line by line."""

    def __init__(self, report: Report, limit: int | None) -> None:
        self.report = report
        self.limit = limit
        self.by_name: dict[bytes, Record] = {}
        self.pieces: dict[bytes, list[tuple[int, int, bytes]]] = {}
        self.in_block: dict[bytes, int] = {}  # the line that each name has in this block

    @property
    def records(self) -> list[Record]:
        return list(self.by_name.values())

    def end(self) -> None:
        """The block is over."""
        self.in_block = {}

    def add(self, number: int, line: bytes) -> None:
        """A line with a name and a stretch of its row."""
        fields = line.split(maxsplit=1)
        if len(self.by_name) == self.limit and fields[0] not in self.by_name:
            return
        if len(fields) < 2:
            what = "a name and a row are expected"
            raise self.report.error(f"line {number}: {what}, not {quoted(_text(line.strip()))}", line=number)
        name, stretch = fields
        if name in self.in_block:
            lines = f"lines {self.in_block[name]} and {number}"
            raise self.report.error(f"name {quoted(_text(name))} occurs twice in one block ({lines})", line=number)
        self.in_block[name] = number
        if name not in self.by_name:
            self.pieces[name] = []
            self.by_name[name] = Record(len(self.by_name) + 1, _text(name), _text(name), number, self.pieces[name])
        before = line[: line.index(stretch, line.index(name) + len(name))]
        self.pieces[name].append((number, len(_text(before)), stretch))


def _has_row(lines: list[bytes]) -> bool:
    return any(line.strip() and not line.lstrip().startswith(b"#") for line in lines)


def _text(characters: bytes) -> str:
    return characters.decode("utf-8", "replace")
