"""What has been read of families, kept in a folder: one file of arrays a family, which goes by its source's content."""

import hashlib
import json
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from evoformer.features.alignment import Alignment
from evoformer.features.manifest import FamilyError, FamilyFiles
from evoformer.files import OutputError, writable_folder, written_whole

VERSION = 2  # of the layout and of what the readers make of a file: another one makes all files be read anew
UNUSABLE = (EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)


def user_cache(source: Path) -> Path:
    """Where what is read of a data folder or a manifest is kept, if nothing else is said.

    A folder for each in `$XDG_CACHE_HOME/evoformer/families`, or in `~/.cache` if that is not set.
    """
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    name = f"{source.name}-{hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:16]}"
    return Path(home).expanduser() / "evoformer" / "families" / name


class FamilyCache:
    """A folder of families. A file is written whole or not at all; one that is damaged is as good as none.

    Raises:
        OutputError: the folder cannot be made or written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = writable_folder(folder)

    def digest(self, files: FamilyFiles) -> str:
        """What tells a family's files from any others: their bytes, formats and the chain.

        Raises:
            FamilyError: a file cannot be read.
        """
        digest = hashlib.sha256(repr((VERSION, files.chain)).encode())
        for path in (files.alignment, files.labels):
            if path is None:
                continue
            try:
                content = path.read_bytes()
            except OSError as error:
                raise FamilyError(f"{path} cannot be read: {error.strerror or error}") from error
            digest.update(repr((path.suffixes, len(content))).encode())
            digest.update(content)
        return digest.hexdigest()

    def holds(self, name: str, digest: str) -> bool:
        """Whether the family of this name was saved with this digest."""
        try:
            with np.load(self.folder / f"{name}.npz", allow_pickle=False) as arrays:
                return str(arrays["digest"]) == digest
        except UNUSABLE:
            return False

    def load(self, name: str, digest: str) -> tuple[Alignment, Float32[np.ndarray, "N_res N_res"]] | None:
        """The family of this name, if it was saved with this digest."""
        try:
            with np.load(self.folder / f"{name}.npz", allow_pickle=False) as arrays:
                if str(arrays["digest"]) != digest:
                    return None
                text = json.loads(arrays["text"].tobytes())
                prefix = "metadata/"
                metadata = {key.removeprefix(prefix): arrays[key] for key in arrays if key.startswith(prefix)}
                deletions, ambiguous = (
                    tuple(arrays[f"{name}_{part}"] for part in ("rows", "columns", "values"))
                    for name in ("deletion", "ambiguous")
                )
                alignment = Alignment(
                    arrays["msa"], text["ids"], text["descriptions"], deletions, text["metadata"] | metadata, ambiguous
                )
                return alignment, arrays["distances"]
        except UNUSABLE:
            return None

    def save(self, name: str, digest: str, alignment: Alignment, distances: Float32[np.ndarray, "N_res N_res"]) -> None:
        """Save a family, in place of what was saved under its name.

        Raises:
            OutputError: it cannot be written.
        """
        path = self.folder / f"{name}.npz"
        is_array = {key: isinstance(value, np.ndarray) for key, value in alignment.metadata.items()}
        text = {
            "ids": alignment.ids,
            "descriptions": alignment.descriptions,
            "metadata": {key: value for key, value in alignment.metadata.items() if not is_array[key]},
        }
        arrays = {f"metadata/{key}": value for key, value in alignment.metadata.items() if is_array[key]}
        for sparse, triple in (("deletion", alignment.sparse_deletions), ("ambiguous", alignment.ambiguous)):
            arrays |= {f"{sparse}_{part}": x for part, x in zip(("rows", "columns", "values"), triple, strict=True)}
        try:
            with written_whole(path) as temporary:
                np.savez(
                    temporary,
                    digest=np.array(digest),
                    text=np.frombuffer(json.dumps(text).encode(), np.uint8),
                    msa=alignment.msa,
                    distances=distances,
                    **arrays,
                )
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
