"""What the readers of all formats share: a sequence with its place in the file, and the report on the file."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

from evoformer.features.alignment import AlignmentError, AlignmentWarning


@dataclass(slots=True)
class Record:
    """One sequence as the file has it.

    `pieces` are the stretches of its row: line (from 1), characters before the stretch in that line, the stretch.
    """

    number: int  # counted from 1
    id: str
    description: str
    line: int  # where the row begins; the header's line while there is no row
    pieces: Sequence[tuple[int, int, bytes]] = ()

    @property
    def row(self) -> bytes:
        """The row's characters without white space."""
        return b"".join(b"".join(piece.split()) for _, _, piece in self.pieces)

    def __str__(self) -> str:
        return f"record {self.number} {quoted(self.id)} (line {self.line})"


@dataclass
class Report:
    """What one file's reading has to say: errors that name the file, and the oddities that make up its one warning."""

    path: str | None
    notes: list[str] = field(default_factory=list)
    places: list[tuple[Record | None, int | None]] = field(default_factory=list)  # of each note: record, line

    def error(
        self, message: str, *, record: Record | None = None, line: int | None = None, column: int | None = None
    ) -> AlignmentError:
        """The error to raise, with the record's line unless another is given."""
        number = None if record is None else record.number
        if line is None and record is not None:
            line = record.line
        id = None if record is None else record.id
        return AlignmentError(message, path=self.path, record=number, line=line, column=column, id=id)

    def note(self, message: str, *, record: Record | None = None, line: int | None = None) -> None:
        """Remember an oddity, and where it was first met."""
        self.notes.append(message)
        self.places.append((record, line))

    def close(self, *, strict: bool, stacklevel: int) -> None:
        """Give the one warning, or raise it as an error at the place of the first oddity if strict."""
        if not self.notes:
            return
        message = "; ".join(self.notes)
        if strict:
            record, line = self.places[0]
            raise self.error(message, record=record, line=line)
        where = "" if self.path is None else f"{self.path}: "
        warnings.warn(AlignmentWarning(where + message), stacklevel=stacklevel + 1)


def listed(values: list[str], limit: int = 5) -> str:
    """`12, 11 and 14`: a few values in words, the rest as `...`."""
    if len(values) > limit:
        return ", ".join(values[:limit]) + ", ..."
    return " and ".join([", ".join(values[:-1]), values[-1]] if len(values) > 1 else values)


def quoted(text: str, limit: int = 60) -> str:
    """A name or a line in quotation marks, cut where it is long."""
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")
