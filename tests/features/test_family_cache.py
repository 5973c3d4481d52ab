"""The cache of families: equal to what was read, made anew when a file's content changes, never half written."""

import numpy as np
import pytest

from evoformer.features import families as reading
from evoformer.features.families import Families, FamilyError, FamilyWarning, read_families
from evoformer.features.family_cache import user_cache


@pytest.fixture
def folder(tmp_path):
    """Two families, one of a complex with ColabFold's header, names beyond ASCII and insertions."""
    folder = tmp_path / "families"
    folder.mkdir()
    (folder / "a.a3m").write_text(">q\nMKTW\n>r\u00e9 \u03b1 helix\nMaaB-gU\n", encoding="utf-8")
    (folder / "b.a3m").write_text("#2,1\t1,2\n>101\t102\nMKT\n>r\nMK-\n")
    for name, N_res in (("a", 4), ("b", 3)):
        np.savez(folder / f"{name}.npz", distances=np.arange(N_res**2).reshape(N_res, N_res))
    return folder


@pytest.fixture
def read_files(monkeypatch):
    """The names of the alignments that are really read."""
    names = []
    read_alignment = reading.read_alignment

    def counted(path):
        names.append(path.name)
        return read_alignment(path)

    monkeypatch.setattr(reading, "read_alignment", counted)
    return names


def assert_same(ours, expected):
    assert [family.name for family in ours] == [family.name for family in expected]
    for one, other in zip(ours, expected, strict=True):
        a, b = one.alignment, other.alignment
        np.testing.assert_array_equal(a.msa, b.msa)
        np.testing.assert_array_equal(a.letters, b.letters)
        np.testing.assert_array_equal(a.deletions, b.deletions)
        assert a.msa.dtype == b.msa.dtype
        assert (a.ids, a.descriptions, a.metadata.keys()) == (b.ids, b.descriptions, b.metadata.keys())
        for key, value in b.metadata.items():
            assert type(a.metadata[key]) is type(value), key
            np.testing.assert_array_equal(a.metadata[key], value)
        assert one.distances.dtype == np.float32
        np.testing.assert_array_equal(one.distances, other.distances)


def test_a_second_reading_comes_from_the_cache_and_is_the_same(folder, tmp_path, read_files):
    expected = read_families(folder)
    assert "row_coverage" in expected[1].alignment.metadata
    assert expected[0].alignment.deletions.any()
    read_files.clear()
    assert_same(read_families(folder, cache=tmp_path / "cache"), expected)
    assert read_files == ["a.a3m", "b.a3m"]
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["a.npz", "b.npz"]
    assert_same(read_families(folder, cache=tmp_path / "cache"), expected)
    assert read_files == ["a.a3m", "b.a3m"]


@pytest.mark.parametrize("changed", ["alignment", "labels"])
def test_a_family_whose_files_change_is_read_anew(folder, tmp_path, read_files, changed):
    cache = tmp_path / "cache"
    read_families(folder, cache=cache)
    read_files.clear()
    if changed == "alignment":
        (folder / "a.a3m").write_text(">q\nMKTV\n")
    else:
        np.savez(folder / "a.npz", distances=np.ones((4, 4)))
    families = read_families(folder, cache=cache)
    assert read_files == ["a.a3m"]
    assert_same(families, read_families(folder))
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"no archive", None], ids=["empty", "text", "cut"])
def test_a_damaged_file_of_the_cache_is_made_anew(folder, tmp_path, read_files, damage):
    cache = tmp_path / "cache"
    expected = read_families(folder, cache=cache)
    whole = (cache / "b.npz").read_bytes()
    (cache / "b.npz").write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    read_files.clear()
    assert_same(read_families(folder, cache=cache), expected)
    assert read_files == ["b.a3m"]
    assert len((cache / "b.npz").read_bytes()) == len(whole)


def test_a_writing_that_fails_leaves_no_file(folder, tmp_path, monkeypatch):
    def full(path, **arrays):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.warns(FamilyWarning, match=r"without a cache .* cannot write .*a\.npz: No space left") as warned:
        families = read_families(folder, cache=tmp_path / "cache")
    assert len(warned) == 1
    assert_same(families, read_families(folder))
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written_and_files_that_are_gone_are_named(folder, tmp_path):
    with pytest.warns(FamilyWarning, match=r"without a cache .* cannot write to output folder .*a\.a3m") as warned:
        families = read_families(folder, cache=folder / "a.a3m")
    assert len(warned) == 1
    assert_same(families, read_families(folder))
    (tmp_path / "families.tsv").write_text("alignment\nmissing.a3m\n")
    with pytest.raises(FamilyError, match=r"missing\.a3m cannot be read: No such file"):
        read_families(tmp_path / "families.tsv", cache=tmp_path / "cache", require_labels=False)


@pytest.mark.parametrize("cached", [True, False])
def test_families_beyond_the_memory_are_read_when_they_are_asked_for(folder, tmp_path, read_files, cached):
    expected = read_families(folder)
    for _ in range(2):
        read_files.clear()
        families = Families(
            folder, cache=tmp_path / "cache" if cached else None, memory=50
        )  # b takes 6 + 36 bytes, a more
        at_first = len(read_files)
        assert_same(families, expected)
        assert_same(families[1:], expected[1:])
        assert len(read_files) == (at_first if cached else 4)
    assert at_first == (0 if cached else 2)


def test_a_cache_that_is_emptied_meanwhile_is_filled_again(folder, tmp_path, read_files):
    families = Families(folder, cache=tmp_path / "cache", memory=0)
    (tmp_path / "cache" / "a.npz").unlink()
    assert_same(families, read_families(folder))
    assert (tmp_path / "cache" / "a.npz").is_file()


def test_the_users_cache_has_a_folder_for_each_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = user_cache(tmp_path / "one" / "data"), user_cache(tmp_path / "two" / "data")
    assert first != second
    assert first.parent == second.parent == tmp_path / "evoformer" / "families"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert str(user_cache(tmp_path)).startswith("/home/someone/.cache/evoformer/families/")
