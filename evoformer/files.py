"""Writing files so that a run that dies leaves none half written."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evoformer.errors import InputError


class OutputError(InputError):
    """An output folder cannot be made or written to."""


def writable_folder(path: str | Path) -> Path:
    """Make a folder, and see that files can be written there.

    Raises:
        OutputError: it cannot be made or written to.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"cannot write to output folder {folder}: {error.strerror}; choose another") from error
    return folder


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, with the same suffix, that takes its place when the block ends well."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
