"""Families: alignments with the distances of their query's structure, read from files or from a cache of them."""

import math
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from jaxtyping import Float32

from evoformer.errors import InputError
from evoformer.features.alignment import Alignment, AlignmentError
from evoformer.features.family_cache import FamilyCache
from evoformer.features.manifest import FamilyError, FamilyFiles, find_families
from evoformer.features.reading import read_alignment
from evoformer.features.structure import StructureError, read_structure
from evoformer.files import OutputError

MEMORY = 2**29  # bytes of letters and distances: some thousand families of usual size
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


class Families(Sequence[Family]):
    """The families of a folder or a manifest with their labels; `find_families` says which files those are.

    Each is read once at the beginning, or found in the cache. They stay in memory as far as there is room; the others
    are taken from the cache, or without one read again, whenever they are asked for.

    Args:
        source: the folder or the manifest.
        split: only this one, such as "train".
        cache: a folder for what has been read, one file a family. A family whose files have another content than when
            it was read is read anew.
        unreadable: whether a family that cannot be read is an error, or skipped with a warning.
        require_labels: whether a family without labels is one that cannot be read; else its distances are NaN.
        memory: bytes that the families kept in memory may take.

    Raises:
        FamilyError: there is no family or none that can be read, two of one name, one without labels, or labels of
            another size.
        AlignmentError, StructureError: a file cannot be read.

    Warns:
        FamilyWarning: for each family that is skipped, and once with their number; once if the cache cannot be written,
            which is then left alone.
    """

    def __init__(
        self,
        source: Path,
        split: str | None = None,
        *,
        cache: Path | None = None,
        unreadable: Literal["raise", "skip"] = "raise",
        require_labels: bool = True,
        memory: float = MEMORY,
    ) -> None:
        found = find_families(source, split)
        self._cache: FamilyCache | None = None
        self._room = memory
        self._families: list[tuple[FamilyFiles, str]] = []  # with the digest of the files
        self._kept: dict[int, Family] = {}
        if cache is not None:
            try:
                self._cache = FamilyCache(cache)
            except OutputError as error:
                self._go_without_cache(error)
        errors: list[InputError] = []
        for files in found:
            try:
                if require_labels and files.labels is None:
                    expected = files.alignment.with_name(f"{files.name}.npz")
                    raise FamilyError(
                        f"family {files.alignment} has no labels: expected {expected} with an array 'distances', or a"
                        " structure"
                    )
                digest = "" if self._cache is None else self._cache.digest(files)
                if self._cache is None or not self._cache.holds(files.name, digest):
                    self._keep(len(self._families), self._read(files, digest))
                self._families.append((files, digest))
            except UNREADABLE as error:
                if unreadable == "raise":
                    raise
                errors.append(error)
                warnings.warn(f"skipped: {error}", FamilyWarning, stacklevel=2)
        if not self._families:
            raise FamilyError(f"0 of {len(found)} alignments under {source} can be read; the first: {errors[0]}")
        if errors:
            warnings.warn(f"skipped {len(errors)} of {len(found)} families under {source}", FamilyWarning, stacklevel=2)

    def __len__(self) -> int:
        return len(self._families)

    @overload
    def __getitem__(self, index: int) -> Family: ...
    @overload
    def __getitem__(self, index: slice) -> list[Family]: ...
    def __getitem__(self, index: int | slice) -> Family | list[Family]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        place = range(len(self))[index]
        if place not in self._kept:
            files, digest = self._families[place]
            content = None if self._cache is None else self._cache.load(files.name, digest)
            family = self._read(files, digest) if content is None else Family(files.name, *content)
            self._keep(place, family)
            return family
        return self._kept[place]

    def _read(self, files: FamilyFiles, digest: str) -> Family:
        content = _read_files(files)
        if self._cache is not None:
            try:
                self._cache.save(files.name, digest, *content)
            except OutputError as error:
                self._go_without_cache(error)
        return Family(files.name, *content)

    def _keep(self, place: int, family: Family) -> None:
        """Keep a family in memory if there is room."""
        size = family.alignment.msa.nbytes + family.distances.nbytes
        if size <= self._room:
            self._room -= size
            self._kept[place] = family

    def _go_without_cache(self, error: OutputError) -> None:
        self._cache = None
        warnings.warn(f"going on without a cache of what is read: {error}", FamilyWarning, stacklevel=3)


def read_families(
    source: Path,
    split: str | None = None,
    *,
    cache: Path | None = None,
    unreadable: Literal["raise", "skip"] = "raise",
    require_labels: bool = True,
) -> list[Family]:
    """All families of a folder or a manifest in memory; arguments, errors and warnings as of `Families`."""
    options: dict[str, Any] = {"cache": cache, "unreadable": unreadable, "require_labels": require_labels}
    return list(Families(source, split, **options, memory=math.inf))


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
