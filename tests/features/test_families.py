"""Families: which files belong together, and labels that cannot be read."""

import io
from pathlib import Path

import numpy as np
import pytest

from evoformer.features.alignment import AlignmentError
from evoformer.features.families import FamilyError, FamilyWarning, read_families
from evoformer.features.structure import StructureError

DISTANCES = np.ones((3, 3), np.float16)


def saved(save, *arrays, **named):
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


def family(folder: Path, name: str, labels: bytes, labels_name: str) -> Path:
    (folder / name).write_text(">q\nMKT\n", encoding="ascii")
    (folder / labels_name).write_bytes(labels)
    return folder


@pytest.mark.parametrize("name", ["a.a3m", "PF00014.25.fasta", "a.b.sto.gz", "a.A3M"])
def test_labels_have_the_alignments_name_without_its_suffixes(tmp_path, name):
    stem = {"a.a3m": "a", "PF00014.25.fasta": "PF00014.25", "a.b.sto.gz": "a.b", "a.A3M": "a"}[name]
    families = read_families(family(tmp_path, name, saved(np.savez, distances=DISTANCES), f"{stem}.npz"))
    assert [each.name for each in families] == [stem]
    assert families[0].distances.dtype == np.float32


def damaged():
    data = bytearray(saved(np.savez_compressed, distances=np.random.default_rng(0).random((3, 3))))
    data[60:-200] = bytes(byte ^ 0x55 for byte in data[60:-200])
    return bytes(data)


@pytest.mark.parametrize(
    "labels",
    [
        b"",
        b"no archive",
        damaged(),
        saved(np.save, DISTANCES),
        saved(np.savez, contacts=DISTANCES),
        saved(np.savez, distances=np.array([["a"] * 3] * 3)),
        saved(np.savez, distances=np.zeros((3, 3), "f4,f4")),
    ],
    ids=["empty", "text", "damaged", "npy", "name", "letters", "pairs"],
)
def test_labels_that_cannot_be_read_are_named(tmp_path, labels):
    with pytest.raises(FamilyError, match=r"labels .*a\.npz cannot be read: .*expected an array 'distances'"):
        read_families(family(tmp_path, "a.a3m", labels, "a.npz"))


def pdb(path: Path, letters: str = "MKT") -> Path:
    """A chain A whose residues stand 4 Angstrom apart on a line."""
    names = {"M": "MET", "K": "LYS", "T": "THR", "W": "TRP"}
    lines = [
        f"ATOM  {i:5}  CB  {names[letter]} A{i:4}    {4.0 * i:8.3f}{0:8.3f}{0:8.3f}{1:6.2f}{0:6.2f}           C"
        for i, letter in enumerate(letters, start=1)
    ]
    path.write_text("\n".join([*lines, "END", ""]), encoding="ascii")
    return path


def test_a_structure_is_a_label_too(tmp_path):
    (tmp_path / "a.a3m").write_text(">q\nMKT\n")
    pdb(tmp_path / "a.pdb")
    assert read_families(tmp_path)[0].distances.tolist() == [[0, 4, 8], [4, 0, 4], [8, 4, 0]]
    np.savez(tmp_path / "a.npz", distances=DISTANCES)  # goes before a structure
    assert read_families(tmp_path)[0].distances.tolist() == DISTANCES.tolist()


def test_a_structure_of_another_protein_is_refused(tmp_path):
    (tmp_path / "a.a3m").write_text(">q\nMKT\n")
    pdb(tmp_path / "a.pdb", "WWW")
    with pytest.raises(StructureError, match=r"a\.pdb has 3, and they do not match"):
        read_families(tmp_path)


def test_labels_may_be_optional(tmp_path):
    (tmp_path / "a.a3m").write_text(">q\nMKT\n")
    with pytest.raises(FamilyError, match=r"a\.a3m has no labels: expected .*a\.npz"):
        read_families(tmp_path)
    families = read_families(tmp_path, require_labels=False)
    assert families[0].distances.shape == (3, 3)
    assert np.isnan(families[0].distances).all()


@pytest.fixture
def mixed(tmp_path):
    """Four families, two of which cannot be read."""
    for name in ("a", "b", "c", "d"):
        family(tmp_path, f"{name}.a3m", saved(np.savez, distances=DISTANCES), f"{name}.npz")
    (tmp_path / "b.a3m").write_text(">q\nMKT\n>r\nMK\n")
    (tmp_path / "c.npz").write_text("nothing")
    return tmp_path


def test_a_family_that_cannot_be_read_is_an_error_unless_it_may_be_skipped(mixed):
    with pytest.raises(AlignmentError, match=r"b\.a3m"):
        read_families(mixed)
    with pytest.warns(FamilyWarning) as warned:
        families = read_families(mixed, unreadable="skip")
    assert [each.name for each in families] == ["a", "d"]
    messages = [str(each.message) for each in warned]
    assert len(messages) == 3
    assert "b.a3m" in messages[0]
    assert "c.npz" in messages[1]
    assert messages[2] == f"skipped 2 of 4 families under {mixed}"


@pytest.mark.filterwarnings("ignore::evoformer.features.families.FamilyWarning")
def test_where_no_family_can_be_read_skipping_is_an_error(mixed):
    for name in ("a", "d"):
        (mixed / f"{name}.npz").unlink()
    with pytest.raises(FamilyError, match=r"0 of 4 alignments under .* can be read; the first: .*a\.a3m has no labels"):
        read_families(mixed, unreadable="skip")
