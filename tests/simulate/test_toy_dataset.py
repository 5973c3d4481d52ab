"""Toy families on disk: the same bytes for a seed, checksums that notice, and nobody's files overwritten."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from evoformer.files import OutputError
from evoformer.simulate.dataset import (
    CHECKSUMS,
    ToyDataError,
    verify_toy_families,
    write_toy_families,
)
from evoformer.simulate.families import Split

REPOSITORY = Path(__file__).parents[2]
SPLITS = {"train": Split(3, (5, 9), (48, 52)), "test": Split(2, (11, 11), (48, 55))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_toy_families(tmp_path / "toy", seed=5, splits=SPLITS)
    return tmp_path / "toy"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_are_where_they_are_said_to_be(folder: Path) -> None:
    stems = ["train/0000", "train/0001", "train/0002", "test/0000", "test/0001"]
    expected = {f"{stem}{suffix}" for stem in stems for suffix in (".a3m", ".npz")} | {CHECKSUMS}
    assert contents(folder).keys() == expected
    distances = np.load(folder / "test" / "0001.npz")["distances"]
    query = (folder / "test" / "0001.a3m").read_text(encoding="ascii").splitlines()[1]
    assert distances.shape == (len(query), len(query))
    assert distances.dtype == np.float16
    assert [path.name for path in folder.parent.iterdir()] == ["toy"]  # nothing temporary is left


def test_a_seed_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    write_toy_families(tmp_path / "again", seed=5, splits=SPLITS)
    write_toy_families(tmp_path / "other", seed=6, splits=SPLITS)
    assert contents(tmp_path / "again") == contents(folder)
    assert contents(tmp_path / "other") != contents(folder)


def test_the_summary_tells_sizes_and_precision(tmp_path: Path) -> None:
    line = write_toy_families(tmp_path / "toy", seed=5, splits=SPLITS)
    assert line.startswith("Families: train 3, test 2. In test: mean pairwise identity 0.")
    assert "DCA 0." in line


def test_intact_files_pass(folder: Path) -> None:
    assert verify_toy_families(folder) == f"{folder}: 10 files agree with SHA256SUMS"


def test_a_flipped_bit_is_noticed(folder: Path) -> None:
    path = folder / "test" / "0001.npz"
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(ToyDataError, match=r"1 files are wrong: test/0001\.npz has changed"):
        verify_toy_families(folder)


def test_missing_and_additional_files_are_noticed(folder: Path) -> None:
    (folder / "train" / "0000.a3m").rename(folder / "train" / "0009.a3m")
    with pytest.raises(ToyDataError, match=r"0000\.a3m is missing, train/0009\.a3m is not listed"):
        verify_toy_families(folder)


def test_a_folder_without_checksums_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToyDataError, match="SHA256SUMS does not exist"):
        verify_toy_families(tmp_path)


def test_checksums_that_are_none_are_named(folder: Path) -> None:
    (folder / CHECKSUMS).write_text("abc *train/0000.a3m\n", encoding="ascii")
    with pytest.raises(ToyDataError, match="line 1: 'abc "):
        verify_toy_families(folder)


def test_a_folder_that_cannot_be_made_and_a_negative_seed_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write to output folder"):
        write_toy_families(tmp_path / "file" / "toy", splits=SPLITS)
    with pytest.raises(ToyDataError, match="seed is -1"):
        write_toy_families(tmp_path / "toy", seed=-1, splits=SPLITS)


def test_families_are_replaced_and_other_files_are_not(folder: Path, tmp_path: Path) -> None:
    write_toy_families(folder, seed=5, splits={"only": Split(1, (4, 4), (48, 48))})
    assert contents(folder).keys() == {"only/0000.a3m", "only/0000.npz", CHECKSUMS}
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter").write_text("one", encoding="ascii")
    with pytest.raises(ToyDataError, match="no folder of toy families"):
        write_toy_families(other, splits=SPLITS)
    assert contents(other) == {"chapter": b"one"}


def test_the_shipped_families_are_intact() -> None:
    toy = REPOSITORY / "data" / "toy"
    if not toy.is_dir():
        pytest.skip("data/toy is not here: an installed copy has none")
    assert "968 files" in verify_toy_families(toy)


def test_the_script_makes_and_checks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["make_toy_alignments.py", *arguments])
        runpy.run_path(str(REPOSITORY / "scripts" / "make_toy_alignments.py"), run_name="__main__")

    run("--check", "--out", str(folder))
    assert "10 files agree" in capsys.readouterr().out
    (folder / CHECKSUMS).unlink()
    with pytest.raises(SystemExit, match=f"error: {folder / CHECKSUMS} does not exist"):
        run("--check", "--out", str(folder))
    with pytest.raises(SystemExit, match="no folder of toy families"):  # it is full of what could be anybody's files
        run("--seed", "1", "--out", str(folder))
