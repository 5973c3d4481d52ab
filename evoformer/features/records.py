"""What the readers of all formats share: sequences with their places in the file, and the report on the file."""

import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from evoformer.features.alignment import AlignmentError, AlignmentWarning

WHITE_SPACE = b" \t\n\r\v\f"

# Where a stretch of a row stands: line (from 1), characters before the stretch in that line, the stretch.
Piece = tuple[int, int, bytes]


@dataclass(slots=True)
class Record:
    """One sequence as the file has it."""

    number: int  # counted from 1
    id: str
    description: str
    line: int  # where the row begins
    text: bytes  # the row; it may have white space in it

    @property
    def row(self) -> bytes:
        """The row's characters without white space."""
        return self.text.translate(None, WHITE_SPACE)

    def __str__(self) -> str:
        return f"record {self.number} {quoted(self.id)} (line {self.line})"


class Records:
    """The records of one alignment, made anew whenever they are gone through: never are all of them in memory."""

    def __iter__(self) -> Iterator[Record]:
        """The records in the file's order.

        Raises:
            AlignmentError: at the first place that no record can be made of.
        """
        raise NotImplementedError

    def pieces(self, record: Record) -> Iterator[Piece]:
        """The stretches of one record's row."""
        raise NotImplementedError

    def at(self, place: int) -> Record:
        """The record at a place, counted from 0."""
        return next(islice(self, place, None))


def lines_of(text: bytes, first_line: int = 1) -> Iterator[tuple[int, bytes]]:
    r"""The lines, with their `\n`, and their numbers."""
    return enumerate(io.BytesIO(text), start=first_line)


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
