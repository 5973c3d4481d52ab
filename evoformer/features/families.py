"""Families: alignments with the distances of their query's structure, read from files or from a cache of them."""

import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float32

from evoformer.errors import InputError
from evoformer.features.alignment import Alignment, AlignmentError
from evoformer.features.family_cache import FamilyCache
from evoformer.features.manifest import FamilyError, FamilyFiles, find_families
from evoformer.features.reading import read_alignment
from evoformer.features.structure import StructureError, read_structure

UNREADABLE = (AlignmentError, FamilyError, StructureError)


class FamilyWarning(UserWarning):
    """A family was skipped since it cannot be read."""


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


def read_families(
    source: Path,
    split: str | None = None,
    *,
    cache: Path | None = None,
    unreadable: Literal["raise", "skip"] = "raise",
    require_labels: bool = True,
) -> list[Family]:
    """Read the families of a folder or a manifest with their labels; `find_families` says which files those are.

    Args:
        source: the folder or the manifest.
        split: only this one, such as "train".
        cache: a folder for what has been read, one file a family. A family whose files have another content than when
            it was read is read anew.
        unreadable: whether a family that cannot be read is an error, or skipped with a warning.
        require_labels: whether a family without labels is one that cannot be read; else its distances are NaN.

    Raises:
        FamilyError: there is no family or none that can be read, two of one name, one without labels, or labels of
            another size.
        AlignmentError, StructureError: a file cannot be read.
        OutputError: the cache cannot be written.

    Warns:
        FamilyWarning: for each family that is skipped, and once with their number.
    """
    found = find_families(source, split)
    store = None if cache is None else FamilyCache(cache)
    families: list[Family] = []
    errors: list[InputError] = []
    for files in found:
        try:
            if require_labels and files.labels is None:
                expected = files.alignment.with_name(f"{files.name}.npz")
                raise FamilyError(
                    f"family {files.alignment} has no labels: expected {expected} with an array 'distances', or a"
                    " structure"
                )
            families.append(_read_family(files, store))
        except UNREADABLE as error:
            if unreadable == "raise":
                raise
            errors.append(error)
            warnings.warn(f"skipped: {error}", FamilyWarning, stacklevel=2)
    if not families:
        raise FamilyError(f"0 of {len(found)} alignments under {source} can be read; the first: {errors[0]}")
    if errors:
        warnings.warn(f"skipped {len(errors)} of {len(found)} families under {source}", FamilyWarning, stacklevel=2)
    return families


def _read_family(files: FamilyFiles, cache: FamilyCache | None) -> Family:
    if cache is None:
        return Family(files.name, *_read_files(files))
    digest = cache.digest(files)
    content = cache.load(files.name, digest)
    if content is None:
        content = _read_files(files)
        cache.save(files.name, digest, *content)
    return Family(files.name, *content)


def _read_files(files: FamilyFiles) -> tuple[Alignment, Float32[np.ndarray, "N_res N_res"]]:
    alignment = read_alignment(files.alignment)
    if files.labels is None:
        return alignment, np.full((alignment.N_res, alignment.N_res), np.nan, np.float32)
    if files.labels.suffix.lower() != ".npz":
        query = alignment.query.replace("-", "X")
        return alignment, read_structure(files.labels, files.chain).align(query)[0]
    distances = _read_distances(files.labels)
    if distances.shape != (alignment.N_res, alignment.N_res):
        raise FamilyError(
            f"family {files.alignment} has {alignment.N_res} residues, its labels {files.labels} have {distances.shape}"
        )
    return alignment, distances


def _read_distances(path: Path) -> Float32[np.ndarray, "..."]:
    try:
        with zipfile.ZipFile(path):  # np.load takes other files, too
            pass
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["distances"].astype(np.float32)
    except (KeyError, OSError, RuntimeError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise FamilyError(f"labels {path} cannot be read: {error}; expected an array 'distances'") from error
