"""Where an alignment comes from: a path, an open file, bytes or text, compressed or not, to plain bytes."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Protocol, runtime_checkable

from evoformer.features.alignment import AlignmentError


@runtime_checkable
class Readable(Protocol):
    """An open file, binary or text."""

    def read(self) -> bytes | str:
        """Everything that is left of it."""


Source = str | PathLike[str] | bytes | Sequence[str] | Readable

_COMPRESSIONS = {
    b"\x1f\x8b": ("gzip", gzip.decompress),
    b"\xfd7zXZ\x00": ("xz", lzma.decompress),
    b"BZh": ("bzip2", bz2.decompress),
}
_COMPRESSED_SUFFIXES = {".gz", ".xz", ".bz2"}


def read_source(source: Source) -> tuple[bytes, str | None]:
    r"""The source's bytes, decompressed, in UTF-8, with `\n` for every line end; and its path, if it has one.

    A string is a path unless it contains a line end, then it is the text itself. A list of strings is a list of lines.

    Raises:
        AlignmentError: if there is no such file, or it cannot be read or decompressed.
        TypeError: for a source of another type.
    """
    data, path = _contents(source)
    for magic, (name, decompress) in _COMPRESSIONS.items():
        if data.startswith(magic):
            try:
                data = decompress(data)
            except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
                raise AlignmentError(f"damaged {name} data: {error}", path=path) from error
            break
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            data = data.decode("utf-16").encode()
        except UnicodeDecodeError as error:
            raise AlignmentError(f"not text in UTF-16: {error}", path=path) from error
    data = data.removeprefix(b"\xef\xbb\xbf")
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n"), path


def format_suffix(path: str | None) -> str:
    """The suffix that says the format, in lower case, below one that says the compression; empty without a path."""
    if path is None:
        return ""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED_SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def file_stem(path: Path) -> str:
    """The file's name without the suffixes of its format and its compression; other dots stay, as in PF00014.25.a3m."""
    name = Path(path.name)
    return Path(name.stem).stem if name.suffix.lower() in _COMPRESSED_SUFFIXES else name.stem


def _contents(source: Source) -> tuple[bytes, str | None]:
    if isinstance(source, bytes):
        return source, None
    if isinstance(source, str) and ("\n" in source or "\r" in source):
        return _encoded(source), None
    if isinstance(source, str | PathLike):
        path = Path(source)
        try:
            return path.read_bytes(), str(path)
        except FileNotFoundError:
            raise AlignmentError("no such file", path=str(path)) from None
        except OSError as error:
            raise AlignmentError(f"cannot be read: {error.strerror or error}", path=str(path)) from error
        except ValueError as error:  # a NUL in the name
            raise AlignmentError(f"cannot be read: {error}", path=str(path)) from error
    if isinstance(source, Readable):
        return _read_file(source)
    if isinstance(source, list | tuple) and all(isinstance(line, str) for line in source):
        return _encoded("\n".join(line.rstrip("\r\n") for line in source)), None
    raise TypeError(
        f"an alignment is a path, an open file, bytes, text or a list of lines, not {type(source).__name__}"
    )


def _read_file(file: Readable) -> tuple[bytes, str | None]:
    name = getattr(file, "name", None)
    path = name if isinstance(name, str) else None
    try:
        data = file.read()
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise AlignmentError(f"cannot be read: {error}", path=path) from error
    return _encoded(data) if isinstance(data, str) else data, path


def _encoded(text: str) -> bytes:
    """Text in UTF-8, also with the surrogates that `errors="surrogateescape"` puts for bytes that are none."""
    return text.encode("utf-8", "surrogatepass")
