"""Manifests: tables of families, their columns, and what is wrong with a table."""

import numpy as np
import pytest

from evoformer.features.families import read_families
from evoformer.features.manifest import FamilyError, FamilyFiles, find_families, read_manifest


def manifest(folder, *rows):
    path = folder / "families.tsv"
    path.write_text("\n".join("\t".join(row) for row in rows) + "\n", encoding="utf-8")
    return path


def test_rows_are_families_with_paths_from_the_manifests_folder(tmp_path):
    path = manifest(
        tmp_path,
        ["split", "alignment", "labels", "chain", "name"],
        ["train", "1abc/hits.a3m.gz", "pdb/1abc.cif", "B", "1abc_B"],
        ["test", "2xyz.sto", "", "", ""],
    )
    assert find_families(path) == [
        FamilyFiles("1abc_B", tmp_path / "1abc" / "hits.a3m.gz", tmp_path / "pdb" / "1abc.cif", "B"),
        FamilyFiles("2xyz", tmp_path / "2xyz.sto"),
    ]
    assert [family.name for family in find_families(path, "test")] == ["2xyz"]


def test_a_manifests_families_are_read(tmp_path):
    (tmp_path / "msa").mkdir()
    (tmp_path / "msa" / "a.fasta").write_text(">q\nMKT\n>r\nM-T\n")
    np.savez(tmp_path / "d.npz", distances=np.full((3, 3), 5.0))
    families = read_families(manifest(tmp_path, ["alignment", "labels"], ["msa/a.fasta", "d.npz"]))
    assert [family.name for family in families] == ["a"]
    assert families[0].alignment.N_seq == 2
    assert families[0].distances.tolist() == [[5.0] * 3] * 3


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["file"], ["a.a3m"]], "has the columns file; expected alignment and any of name, labels"),
        ([["alignment", "chains"], ["a.a3m", "A"]], "has the columns alignment, chains; expected"),
        ([["alignment", "alignment"], ["a.a3m", "a.a3m"]], "has the columns alignment, alignment; expected"),
        ([[""]], "has the columns ; expected"),
        ([["alignment", "split"], ["a.a3m"]], "line 2: 1 cells, but 2 columns"),
        ([["alignment", "split"], ["a.a3m", "train"], ["", "train"]], "line 3: no alignment"),
        ([["alignment", "name"], ["a.a3m", "../a"]], r"line 2: the name '\.\./a' cannot be a file's"),
        ([["alignment"]], r"0 alignments under .*families\.tsv: expected a row for each"),
        ([["alignment"], ["a.a3m"], ["b/a.a3m"]], r"families .*a\.a3m and .*b/a\.a3m would share"),
        ([["alignment"], ["a.a3m"], ["a.a3m"]], r"families .*a\.a3m and .*a\.a3m would share"),
    ],
)
def test_a_damaged_manifest_is_named_with_what_is_wrong(tmp_path, rows, message):
    with pytest.raises(FamilyError, match=message):
        find_families(manifest(tmp_path, *rows))


def test_a_split_that_no_row_has_is_named(tmp_path):
    with pytest.raises(FamilyError, match="has no column split, which says what is 'train'"):
        find_families(manifest(tmp_path, ["alignment"], ["a.a3m"]), "train")
    with pytest.raises(FamilyError, match=r"0 alignments under .*tsv: expected rows whose split is 'train'"):
        find_families(manifest(tmp_path, ["alignment", "split"], ["a.a3m", "test"]), "train")


def test_what_is_no_text_is_named(tmp_path):
    path = tmp_path / "families.tsv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FamilyError, match=r"families\.tsv cannot be read"):
        read_manifest(path)
