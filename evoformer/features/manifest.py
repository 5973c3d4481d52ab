"""Which files make a family, found in a folder or listed in a table."""

from pathlib import Path
from typing import NamedTuple

from evoformer.errors import InputError
from evoformer.features.sources import FORMAT_OF_SUFFIX, file_stem, format_suffix

LABEL_SUFFIXES = (".npz", ".cif", ".cif.gz", ".mmcif", ".mmcif.gz", ".pdb", ".pdb.gz", ".ent", ".ent.gz")
COLUMNS = ("alignment", "name", "labels", "chain", "split")


class FamilyError(InputError):
    """Families cannot be found, or two of their files do not fit together."""


class FamilyFiles(NamedTuple):
    """The files of a family.

    Attributes:
        name: no other family has it.
        alignment: any that `read_alignment` reads.
        labels: an `.npz` with an array `distances`, or a PDB or mmCIF file.
        chain: of the structure; the first protein chain if not given.
    """

    name: str
    alignment: Path
    labels: Path | None = None
    chain: str | None = None


def find_families(source: Path, split: str | None = None) -> list[FamilyFiles]:
    """The families of a folder or of a manifest, each with its own name.

    In a folder, the labels of `NAME.a3m` are `NAME.npz`, or a structure such as `NAME.cif` or `NAME.pdb.gz`. A manifest
    is a table with tabs between its columns, whose first line names them: `alignment` and, where wanted, `name` (else
    the file's without suffixes), `labels`, `chain` and `split`. Its paths are relative to its own folder.

    Args:
        source: the folder or the manifest.
        split: only this one, such as "train": a folder in the folder, or the rows of a manifest that say so.

    Raises:
        FamilyError: there is none, the table is damaged, or two families have one name.
    """
    if source.is_file():
        families = read_manifest(source, split)
        expected = "a row for each" if split is None else f"rows whose split is {split!r}"
    else:
        source = source if split is None else source / split
        families = _families_in(source)
        expected = f"files that end in {', '.join(sorted(FORMAT_OF_SUFFIX))}"
    if not families:
        raise FamilyError(f"0 alignments under {source}: expected {expected}")
    by_name: dict[str, Path] = {}
    for family in families:
        if family.name in by_name:
            other = by_name[family.name]
            raise FamilyError(f"families {other} and {family.alignment} would share their labels: rename one")
        by_name[family.name] = family.alignment
    return families


def _families_in(folder: Path) -> list[FamilyFiles]:
    families = []
    for path in sorted(folder.glob("*")):
        if format_suffix(path.name) in FORMAT_OF_SUFFIX:
            name = file_stem(path)
            candidates = [folder / f"{name}{suffix}" for suffix in LABEL_SUFFIXES]
            families.append(FamilyFiles(name, path, next((path for path in candidates if path.is_file()), None)))
    return families


def read_manifest(path: Path, split: str | None = None) -> list[FamilyFiles]:
    """The rows of a manifest, or those of one split; see `find_families`.

    Raises:
        FamilyError: it cannot be read, lacks a column, or a row does not fit them.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FamilyError(f"manifest {path} cannot be read: {error}") from error
    columns = lines[0].split("\t") if lines else []
    if "alignment" not in columns or not set(columns) <= set(COLUMNS) or len(set(columns)) < len(columns):
        raise FamilyError(
            f"manifest {path} has the columns {', '.join(columns)};"
            f" expected alignment and any of {', '.join(COLUMNS[1:])}"
        )
    if split is not None and "split" not in columns:
        raise FamilyError(f"manifest {path} has no column split, which says what is {split!r}")
    families = []
    for number, line in enumerate(lines[1:], start=2):
        cells = line.split("\t")
        if not line.strip():
            continue
        if len(cells) != len(columns):
            raise FamilyError(f"manifest {path}, line {number}: {len(cells)} cells, but {len(columns)} columns")
        row = {column: cell.strip() for column, cell in zip(columns, cells, strict=True)}
        if not row["alignment"]:
            raise FamilyError(f"manifest {path}, line {number}: no alignment")
        if split is None or row["split"] == split:
            families.append(_family_of(row, path, number))
    return families


def _family_of(row: dict[str, str], path: Path, number: int) -> FamilyFiles:
    alignment = path.parent / row["alignment"]
    name = row.get("name") or file_stem(alignment)
    if name in (".", "..") or Path(name).name != name:
        raise FamilyError(f"manifest {path}, line {number}: the name {name!r} cannot be a file's")
    labels = row.get("labels")
    return FamilyFiles(name, alignment, path.parent / labels if labels else None, row.get("chain") or None)
