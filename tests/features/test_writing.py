"""Alignment.write: what was written is read back as an equal alignment, and what cannot be is said."""

import contextlib
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoformer.features.alignment import Alignment, AlignmentError, AlignmentWarning
from evoformer.features.reading import read_alignment

CASES = Path(__file__).parents[1] / "cases"
GOLDEN = Path(__file__).parents[1] / "golden"
SUFFIXES = {"a3m": ".a3m", "fasta": ".fasta", "stockholm": ".sto", "clustal": ".aln"}
FILES = ["01_basic.a3m", "35_nonstandard_letters.a3m", "39_length_one.a3m", "42_aligned_gapped_query.fasta"]
FILES += ["43_jackhmmer_style.sto", "52_clustal_stripped_consensus.aln", "55_forty_rows.a3m"]


def read_quietly(source, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_alignment(source, **options)


def write_quietly(alignment, path, format=None):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alignment.write(path, format)


@pytest.mark.parametrize("format", SUFFIXES)
@pytest.mark.parametrize("file", [CASES / name for name in FILES] + [GOLDEN / "alignment_a.a3m"], ids=lambda f: f.name)
def test_every_format_holds_every_alignment(file, format, tmp_path):
    alignment = read_quietly(file)
    path = tmp_path / f"copy{SUFFIXES[format]}"
    write_quietly(alignment, path)
    again = read_quietly(path, strict=True)
    assert again.metadata["format"] == format
    assert again == alignment
    assert format == "clustal" or again.descriptions == alignment.descriptions
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


LETTERS = st.integers(0, 21)
NAMES = st.text("ab/|.:;#>=-_1é", min_size=1, max_size=6)


@st.composite
def alignments(draw):
    N_seq, N_res = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    msa = [[draw(LETTERS) for _ in range(N_res)] for _ in range(N_seq)]
    msa[0] = [letter % 21 for letter in msa[0]]
    counts = [[draw(st.sampled_from([0, 0, 0, 1, 3])) if i else 0 for _ in range(N_res)] for i in range(N_seq)]
    ids = draw(st.lists(NAMES, min_size=N_seq, max_size=N_seq, unique=True))
    ids = [f"n{name}" for name in ids]
    return Alignment(msa, ids, [f"{name} described, twice" for name in ids], counts)


@given(alignments(), st.sampled_from(sorted(SUFFIXES)))
@settings(max_examples=150, deadline=None)
def test_any_alignment_comes_back(tmp_path_factory, alignment, format):
    path = tmp_path_factory.mktemp("written") / "alignment"
    write_quietly(alignment, path, format)
    again = read_quietly(path, format=format)
    assert again == alignment
    assert format == "clustal" or again.descriptions == alignment.descriptions


def test_inserted_letters_are_written_as_x(tmp_path):
    alignment = Alignment([[12, 11, 16], [12, 21, 16]], ["q", "hit"], deletions=[[0, 0, 0], [1, 0, 2]])
    expected = {
        "a3m": ">q\nMKT\n>hit\nxM-xxT\n",
        "fasta": ">q\n-MK--T\n>hit\nxM-xxT\n",
        "stockholm": "# STOCKHOLM 1.0\n\nq   -MK--T\nhit xM-xxT\n//\n",
        "clustal": "CLUSTAL multiple sequence alignment\n\n\nq   -MK--T\nhit xM-xxT\n",
    }
    for format, text in expected.items():
        alignment.write(tmp_path / "out", format)
        assert (tmp_path / "out").read_text() == text


def test_a_complex_keeps_its_chains_in_a3m(tmp_path):
    alignment = read_quietly(CASES / "11_colabfold_complex.a3m")
    write_quietly(alignment, tmp_path / "copy.a3m")
    again = read_quietly(tmp_path / "copy.a3m")
    assert again == alignment
    assert again.descriptions == alignment.descriptions
    for name in ("chain_lengths", "copies"):
        assert again.metadata[name] == alignment.metadata[name]
    np.testing.assert_array_equal(again.metadata["row_coverage"], alignment.metadata["row_coverage"])
    joined = alignment[:2].concatenate(alignment[:2], axis="columns")
    write_quietly(joined, tmp_path / "joined.a3m")
    assert read_quietly(tmp_path / "joined.a3m") == joined


@pytest.mark.parametrize(
    ("alignment", "format", "lost", "ids"),
    [
        (Alignment([[1], [2], [3]], ["a", "a", "a_2"]), "stockholm", "repeated ids", ["a", "a_3", "a_2"]),
        (Alignment([[1], [2]], ["a b", ""]), "fasta", "cannot hold them: 2", ["a_b", "sequence_1"]),
        (Alignment([[1], [2]], ["ss_x", "#"]), "a3m", "cannot hold them: 1", ["_ss_x", "#"]),
        (Alignment([[1], [2]], ["#", ">x"]), "clustal", "cannot hold them: 2", ["_#", "_>x"]),
        (Alignment([[1, 21]], ["q"]), "fasta", "the query has a gap are read back as insertions", ["q"]),
        (Alignment([[1, 2]], ["q"], deletions=[[0, 2]]), "clustal", "insertions of the query are left out", ["q"]),
    ],
)
def test_what_a_format_cannot_hold_is_changed_with_one_warning(alignment, format, lost, ids, tmp_path):
    with pytest.warns(AlignmentWarning, match=lost) as caught:
        alignment.write(tmp_path / "out", format)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert read_quietly(tmp_path / "out", format=format).ids == ids


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_files_are_compressed_by_their_suffix(suffix, tmp_path):
    alignment = read_quietly(CASES / "55_forty_rows.a3m")
    path = tmp_path / f"forty.sto{suffix}"
    write_quietly(alignment, path)
    assert path.stat().st_size < 2000
    assert read_quietly(path) == alignment


def test_errors_name_the_file(tmp_path):
    alignment = Alignment([[1]])
    with pytest.raises(AlignmentError, match=r"out\.txt: the name does not say the format"):
        alignment.write(tmp_path / "out.txt")
    with pytest.raises(AlignmentError, match="unknown format 'hmm', known are a3m, fasta, stockholm, clustal"):
        alignment.write(tmp_path / "out.txt", "hmm")
    with pytest.raises(AlignmentError, match=r"out\.fa: cannot be written: No such file"):
        alignment.write(tmp_path / "nowhere" / "out.fa")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "old.a3m"
    Alignment([[1]]).write(path)
    before = path.read_bytes()

    def full(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", full)
    with contextlib.suppress(AlignmentError):
        Alignment([[2]]).write(path)
    assert path.read_bytes() == before
