"""The toy families as files: A3M alignments and distances, with checksums."""

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from evoformer.contacts.dca import mean_field_dca
from evoformer.contacts.precision import contact_precision
from evoformer.errors import InputError
from evoformer.features.identity import pairwise_identity
from evoformer.files import writable_folder
from evoformer.simulate.families import Split, ToyFamily, a3m_text, make_families

CHECKSUMS = "SHA256SUMS"

TOY_SPLITS = {
    "train": Split(400, N_seq=(64, 128)),
    "validation": Split(24, N_seq=(128, 128)),
    "test": Split(60, N_seq=(128, 128)),
}


class ToyDataError(InputError):
    """A folder of toy families is not what its checksums say, or something else is in its place."""


def write_toy_families(folder: Path, *, seed: int = 0, splits: Mapping[str, Split] | None = None) -> str:
    """Make families and write them as SPLIT/NNNN.a3m and SPLIT/NNNN.npz (`distances`, float16), with SHA256SUMS.

    The folder appears, or replaces an earlier one of toy families, only once all of it is written.

    Args:
        folder: where to; it is made where it does not exist.
        seed: decides everything.
        splits: sizes, `TOY_SPLITS` if not given.

    Returns:
        `summary` of what was made.

    Raises:
        ToyDataError: `folder` is a file, or holds something without SHA256SUMS; or the seed is negative.
        OutputError: the folder that `folder` is to stand in cannot be made or written to.
    """
    if seed < 0:
        raise ToyDataError(f"the seed is {seed}, it must be at least 0")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / CHECKSUMS).is_file()):
        raise ToyDataError(f"{folder} exists and is no folder of toy families ({CHECKSUMS} is missing)")
    writable_folder(folder.parent)
    families = make_families(splits or TOY_SPLITS, seed)
    letters_rng = np.random.default_rng([seed, 1])  # the letters of insertions, apart from what they are inserted in
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        fresh = Path(temporary) / "new"
        for split, members in families.items():
            (fresh / split).mkdir(parents=True)
            for number, family in enumerate(members):
                path = fresh / split / f"{number:04d}.a3m"
                text = a3m_text(family, f"{split}{number:04d}", letters_rng)
                path.write_text(text, encoding="ascii", newline="\n")
                np.savez_compressed(path.with_suffix(".npz"), distances=family.distances)
        lines = [f"{checksum}  {name}\n" for name, checksum in _checksums(fresh).items()]
        (fresh / CHECKSUMS).write_text("".join(lines), encoding="ascii", newline="\n")
        if folder.exists():
            folder.rename(Path(temporary) / "old")
        fresh.rename(folder)
    return summary(families)


def verify_toy_families(folder: Path) -> str:
    """Compare every file with SHA256SUMS (the format of the program sha256sum); returns a line that says all is well.

    Raises:
        ToyDataError: files have changed, are missing or are not listed; the message names the first few.
    """
    if not (folder / CHECKSUMS).is_file():
        raise ToyDataError(f"{folder / CHECKSUMS} does not exist")
    expected = {}
    for number, line in enumerate((folder / CHECKSUMS).read_text("utf-8", "replace").splitlines(), start=1):
        checksum, separator, name = line.partition("  ")
        if not separator:
            raise ToyDataError(f"{folder / CHECKSUMS}, line {number}: {line!r} is no checksum, two blanks and a name")
        expected[name] = checksum
    found = _checksums(folder)
    wrong = [f"{name} is missing" for name in expected if name not in found]
    wrong += [f"{name} is not listed" for name in found if name not in expected]
    wrong += [f"{name} has changed" for name in expected if name in found and found[name] != expected[name]]
    if wrong:
        raise ToyDataError(f"{folder}: {len(wrong)} files are wrong: {', '.join(wrong[:5])}")
    return f"{folder}: {len(found)} files agree with {CHECKSUMS}"


def summary(families: Mapping[str, list[ToyFamily]]) -> str:
    """A line on the sizes of the splits, and for the last one the identity of rows and the precision of DCA."""
    sizes = ", ".join(f"{split} {len(members)}" for split, members in families.items())
    name, measured = list(families.items())[-1]
    identity = np.mean([pairwise_identity(family.msa) for family in measured])
    results = [contact_precision(mean_field_dca(family.msa), family.distances) for family in measured]
    dca, chance = np.mean([(result.top[1], result.chance) for result in results], axis=0)
    return (
        f"Families: {sizes}. In {name}: mean pairwise identity {identity:.3f}; "
        f"P@L of mean-field DCA {dca:.3f}, of random pairs {chance:.3f}."
    )


def _checksums(folder: Path) -> dict[str, str]:
    """Name, relative to `folder`, to SHA-256 of every file below it, in the order of names."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / CHECKSUMS)
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
