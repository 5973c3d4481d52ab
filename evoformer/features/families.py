"""Families: alignments with the distances of their query's structure, as a folder of files."""

import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from evoformer.errors import InputError
from evoformer.features.alignment import Alignment
from evoformer.features.reading import read_alignment
from evoformer.features.sources import file_stem, format_suffix

ALIGNMENT_SUFFIXES = {".a3m", ".a2m", ".fa", ".fas", ".fasta", ".mfa", ".sto", ".stk", ".stockholm", ".aln", ".clustal"}


class FamilyError(InputError):
    """A folder of families lacks something, or two of its files do not fit together."""


class Family(NamedTuple):
    """An alignment and the truth about its query.

    Attributes:
        name: the name of its files, without the suffixes of format and compression.
        alignment: row 0 is the query.
        distances: between C-beta atoms (C-alpha of glycine), Angstrom, NaN where a residue is not resolved.
    """

    name: str
    alignment: Alignment
    distances: Float32[np.ndarray, "N_res N_res"]


def read_families(folder: Path) -> list[Family]:
    """Read every alignment of a folder with its labels: `NAME.npz` with an array `distances` beside `NAME.a3m`.

    Raises:
        FamilyError: the folder holds no alignment, two of one name, one without labels, or labels of another size.
        AlignmentError: an alignment cannot be read.
    """
    files = sorted(path for path in folder.glob("*") if format_suffix(path.name) in ALIGNMENT_SUFFIXES)
    if not files:
        raise FamilyError(
            f"no alignment under {folder}: expected files that end in {', '.join(sorted(ALIGNMENT_SUFFIXES))}"
        )
    by_name: dict[str, Path] = {}
    for path in files:
        if (other := by_name.setdefault(file_stem(path), path)) != path:
            raise FamilyError(f"families {other} and {path} would share their labels: rename one")
    return [_read_family(path) for path in files]


def _read_family(path: Path) -> Family:
    name = file_stem(path)
    labels = path.parent / f"{name}.npz"
    if not labels.is_file():
        raise FamilyError(f"family {path} has no labels: expected {labels} with an array 'distances'")
    alignment = read_alignment(path)
    try:
        with zipfile.ZipFile(labels):  # np.load takes other files, too
            pass
        with np.load(labels, allow_pickle=False) as arrays:
            distances = arrays["distances"].astype(np.float32)
    except (KeyError, OSError, RuntimeError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise FamilyError(f"labels {labels} cannot be read: {error}; expected an array 'distances'") from error
    if distances.shape != (alignment.N_res, alignment.N_res):
        raise FamilyError(f"family {path} has {alignment.N_res} residues, its labels {labels} have {distances.shape}")
    return Family(name, alignment, distances)
