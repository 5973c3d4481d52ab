"""`Alignment.write`: an alignment to A3M, FASTA, Stockholm or Clustal."""

import bz2
import gzip
import lzma
import re
import warnings
from collections.abc import Callable
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evoformer.constants import GAP
from evoformer.features.alignment import Alignment, AlignmentError, AlignmentWarning
from evoformer.features.sources import FORMAT_OF_SUFFIX, format_suffix
from evoformer.files import written_whole

_COMPRESS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
_CLUSTAL_WIDTH = 60
# What makes a name an annotation (FASTA, A3M), or a comment or a header (Stockholm, Clustal) to a reader.
_ANNOTATION = re.compile(r"(ss|sa|aa)_")
_COMMENT = re.compile(r"[#>;]|//")


def write_alignment(alignment: Alignment, path: str | PathLike[str], format: str | None = None) -> None:
    """Write an alignment; see `Alignment.write`."""
    path = Path(path)
    if format is None:
        format = FORMAT_OF_SUFFIX.get(format_suffix(str(path)))
        if format is None:
            known = ", ".join(FORMAT_OF_SUFFIX)
            raise AlignmentError(f"the name does not say the format: it ends in none of {known}", path=str(path))
    if format not in _WRITERS:
        raise AlignmentError(f"unknown format {format!r}, known are {', '.join(_WRITERS)}", path=str(path))
    lost: list[str] = []
    lines = _WRITERS[format](alignment, lost)
    data = ("\n".join(lines) + "\n").encode("utf-8", "replace")
    compress = _COMPRESS.get(path.suffix.lower())
    try:
        with written_whole(path) as temporary:
            temporary.write_bytes(data if compress is None else compress(data))
    except OSError as error:
        raise AlignmentError(f"cannot be written: {error.strerror or error}", path=str(path)) from error
    if lost:
        warnings.warn(AlignmentWarning(f"{path}: {'; '.join(lost)}"), stacklevel=3)


def _a3m(alignment: Alignment, lost: list[str]) -> list[str]:
    if (alignment.msa[0] == GAP).any():
        lost.append("gaps of the query are read back as X")
    lengths: list[int] = alignment.metadata.get("chain_lengths", [])
    copies: list[int] = alignment.metadata.get("copies", [])
    has_chains = len(lengths) == len(copies) > 0 and 0 not in lengths
    names = _names(alignment.ids, lost, unique=False, joined=has_chains and len(lengths) > 1)
    lines = [f"#{','.join(map(str, lengths))}\t{','.join(map(str, copies))}"] if has_chains else []
    letters = alignment.letters
    rows, columns, counts = alignment.sparse_deletions
    starts = np.searchsorted(rows, np.arange(alignment.N_seq + 1))
    for i, name in enumerate(names):
        own = slice(starts[i], starts[i + 1])
        row = np.insert(letters[i], np.repeat(columns[own], counts[own]), ord("x"))
        lines += [f">{_header(name, alignment.descriptions[i])}", row.tobytes().decode()]
    return lines


def _fasta(alignment: Alignment, lost: list[str]) -> list[str]:
    names = _names(alignment.ids, lost, unique=False)
    lines = []
    for name, description, row in zip(names, alignment.descriptions, _aligned_rows(alignment, lost), strict=True):
        lines += [f">{_header(name, description)}", row]
    return lines


def _stockholm(alignment: Alignment, lost: list[str]) -> list[str]:
    names = _names(alignment.ids, lost, unique=True)
    lines = ["# STOCKHOLM 1.0", ""]
    for name, description in zip(names, alignment.descriptions, strict=True):
        words = _header(name, description).split(maxsplit=1)
        if len(words) > 1:
            lines.append(f"#=GS {name} DE {words[1]}")
    width = max(map(len, names))
    rows = _aligned_rows(alignment, lost)
    return [*lines, *(f"{name:<{width}} {row}" for name, row in zip(names, rows, strict=True)), "//"]


def _clustal(alignment: Alignment, lost: list[str]) -> list[str]:
    names = _names(alignment.ids, lost, unique=True)
    width = max(map(len, names))
    rows = _aligned_rows(alignment, lost)
    lines = ["CLUSTAL multiple sequence alignment", ""]
    for start in range(0, len(rows[0]), _CLUSTAL_WIDTH):
        stretch = slice(start, start + _CLUSTAL_WIDTH)
        lines += ["", *(f"{name:<{width}} {row[stretch]}" for name, row in zip(names, rows, strict=True))]
    return lines


_WRITERS = {"a3m": _a3m, "fasta": _fasta, "stockholm": _stockholm, "clustal": _clustal}


def _aligned_rows(alignment: Alignment, lost: list[str]) -> list[str]:
    """Rows of one length, with columns of `x` and query gaps for the insertions of any row."""
    rows, columns, counts = alignment.sparse_deletions
    if (rows == 0).any():
        lost.append("insertions of the query are left out")
        rows, columns, counts = rows[rows > 0], columns[rows > 0], counts[rows > 0]
    if (alignment.msa[0] == GAP).any():
        lost.append("columns where the query has a gap are read back as insertions")
    inserted = np.zeros(alignment.N_res, np.int64)  # columns needed before each column
    np.maximum.at(inserted, columns, counts)
    place: NDArray[np.int64] = np.arange(alignment.N_res) + np.cumsum(inserted)  # of each column in the file
    cells = np.full((alignment.N_seq, alignment.N_res + int(inserted.sum())), ord("-"), np.uint8)
    cells[:, place] = alignment.letters
    for back in range(1, int(counts.max(initial=0)) + 1):
        longer = counts >= back
        cells[rows[longer], place[columns[longer]] - back] = ord("x")
    return [row.tobytes().decode() for row in cells]


def _header(name: str, description: str) -> str:
    """The header line that is read back as the name, and as the description where that begins with the name."""
    text = " ".join(description.splitlines()).replace("\0", " ").strip()
    words = text.split(maxsplit=1)
    if text == name or (words and words[0] == name.split("\t")[0]):
        return text if "\t" not in name or _halves(text) == name else name
    return f"{name} {text}" if text and "\t" not in name else name


def _halves(text: str) -> str:
    return "\t".join(field.split(maxsplit=1)[0] for field in text.split("\t") if field.strip())


def _names(ids: list[str], lost: list[str], *, unique: bool, joined: bool = False) -> list[str]:
    """The ids as the format holds them: `unique` in Stockholm and Clustal, `joined` by tabs in A3M of a complex."""
    special = _COMMENT if unique else _ANNOTATION
    names = []
    for i, name in enumerate(ids):
        plain = re.sub(r"[ \n\r\f\v\0]+" if joined else r"[\s\0]+", "_", name, flags=re.ASCII)
        names.append("_" + plain if special.match(plain) else plain or f"sequence_{i}")
    changed = sum(name != new for name, new in zip(ids, names, strict=True))
    if changed:
        lost.append(f"ids written in another way because the format cannot hold them: {changed}")
    if unique:
        seen: dict[str, int] = {}
        repeated = 0
        taken = set(names)
        for i, name in enumerate(names):
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > 1:
                repeated += 1
                while (new := f"{name}_{seen[name]}") in taken:
                    seen[name] += 1
                taken.add(new)
                names[i] = new
        if repeated:
            lost.append(f"repeated ids that now end in a number: {repeated}")
    return names
