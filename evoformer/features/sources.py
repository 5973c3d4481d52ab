"""Where an alignment comes from: a path, an open file, bytes or text, compressed or not, to plain bytes."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from evoformer.features.alignment import AlignmentError


@runtime_checkable
class Readable(Protocol):
    """An open file, binary or text."""

    def read(self, size: int = -1, /) -> bytes | str:
        """Up to `size` bytes or characters; everything that is left without a size."""


Source = str | PathLike[str] | bytes | Sequence[str] | Readable

# What a file's name says of its format; A2M is A3M with dots.
FORMAT_OF_SUFFIX = {
    ".a3m": "a3m",
    ".a2m": "a3m",
    ".fa": "fasta",
    ".fasta": "fasta",
    ".fas": "fasta",
    ".mfa": "fasta",
    ".sto": "stockholm",
    ".stk": "stockholm",
    ".stockholm": "stockholm",
    ".aln": "clustal",
    ".clustal": "clustal",
}

# First bytes, name, and the class that reads what was compressed.
_COMPRESSIONS: dict[bytes, tuple[str, Callable[[Any], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda file: gzip.GzipFile(fileobj=file)),
    b"\xfd7zXZ\x00": ("xz", lzma.LZMAFile),
    b"BZh": ("bzip2", bz2.BZ2File),
}
_COMPRESSED_SUFFIXES = {".gz", ".xz", ".bz2"}
_FIRST_CHUNK = 2**16
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def read_source(source: Source, enough: Callable[[bytes], int | None] | None = None) -> tuple[bytes, str | None]:
    r"""The source's bytes, decompressed, in UTF-8, with `\n` for every line end; and its path, if it has one.

    A string is a path unless it contains a line end, then it is the text itself. A list of strings is a list of lines.

    Args:
        source: where the alignment is
        enough: asked now and then, with the beginning of the text, how many of its bytes suffice; None is to read on.
            What lies behind is neither read nor decompressed

    Raises:
        AlignmentError: if there is no such file, or it cannot be read or decompressed.
        TypeError: for a source of another type.
    """
    what = "cannot be read"
    path = _path_of(source)
    try:
        with _opened(source) as file:
            start = file.peek(6)
            for magic, (name, decompressed) in _COMPRESSIONS.items():
                if start.startswith(magic):
                    file, what = decompressed(file), f"damaged {name} data"
                    break
            if enough is None:
                return _text(file.read(), path), path
            data = b""
            while chunk := file.read(max(_FIRST_CHUNK, len(data))):
                data += chunk
                if not data.startswith(_UTF_16):
                    text = _text(data, path)
                    end = enough(text)
                    if end is not None:
                        return text[:end], path
            return _text(data, path), path
    except AlignmentError:
        raise
    except FileNotFoundError:
        raise AlignmentError("no such file", path=path) from None
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise AlignmentError(f"{what}: {reason}", path=path) from error


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


def _path_of(source: Source) -> str | None:
    if isinstance(source, str):
        return None if "\n" in source or "\r" in source else str(Path(source))
    if isinstance(source, PathLike):
        return str(Path(source))
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else None


@contextmanager
def _opened(source: Source) -> Iterator[io.BufferedReader]:
    """The source as a binary file. Only what is opened here is closed."""
    if isinstance(source, PathLike) or (isinstance(source, str) and _path_of(source) is not None):
        with Path(source).open("rb") as file:
            yield file
    elif isinstance(source, bytes):
        yield _Pieces(io.BytesIO(source)).buffered()
    elif isinstance(source, str):
        yield _Pieces(io.BytesIO(_encoded(source))).buffered()
    elif isinstance(source, Readable):
        yield _Pieces(source).buffered()
    elif isinstance(source, list | tuple) and all(isinstance(line, str) for line in source):
        text = _encoded("\n".join(line.rstrip("\r\n") for line in source))
        yield _Pieces(io.BytesIO(text)).buffered()
    else:
        raise TypeError(
            f"an alignment is a path, an open file, bytes, text or a list of lines, not {type(source).__name__}"
        )


class _Pieces(io.RawIOBase):
    """An open file of any kind, binary or text, as raw bytes. Closing this does not close the file."""

    def __init__(self, file: Readable) -> None:
        self.file = file
        self.piece = io.BytesIO()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not (size := self.piece.readinto(buffer)):
            data = self.file.read(len(buffer))
            self.piece = io.BytesIO(_encoded(data) if isinstance(data, str) else data)
            size = self.piece.readinto(buffer)
        return size

    def buffered(self) -> io.BufferedReader:
        return io.BufferedReader(self, _FIRST_CHUNK)


def _text(data: bytes, path: str | None) -> bytes:
    if data.startswith(_UTF_16):
        try:
            data = data.decode("utf-16").encode()
        except UnicodeDecodeError as error:
            raise AlignmentError(f"not text in UTF-16: {error}", path=path) from error
    data = data.removeprefix(b"\xef\xbb\xbf")
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def _encoded(text: str) -> bytes:
    """Text in UTF-8, also with the surrogates that `errors="surrogateescape"` puts for bytes that are none."""
    return text.encode("utf-8", "surrogatepass")
