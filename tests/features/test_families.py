"""Families: which files belong together, and labels that cannot be read."""

import io
from pathlib import Path

import numpy as np
import pytest

from evoformer.features.families import FamilyError, read_families

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
