"""scripts/convert_alignment.py: conversion, inspection, and one line for each mistake."""

import subprocess
import sys
from pathlib import Path

import pytest

from evoformer.features.converting import inspect_alignment
from evoformer.features.reading import read_alignment

CASES = Path(__file__).parents[1] / "cases"
SCRIPT = Path(__file__).parents[2] / "scripts" / "convert_alignment.py"


def run(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_an_alignment_is_converted(tmp_path):
    out = tmp_path / "out.sto"
    result = run(CASES / "01_basic.a3m", out, "--max-seqs", 2)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"wrote 2 rows of 12 columns to {out}\n"
    assert read_alignment(out) == read_alignment(CASES / "01_basic.a3m", max_seqs=2)


def test_an_alignment_is_inspected(tmp_path):
    path = tmp_path / "odd.a3m"
    path.write_text(">q\nMKTXYWQLN\n>a\nMK-AYaaW_LN\n>a\nMK-AYW-LN\n>b\n---------\n")
    result = run("inspect", path)
    assert (result.returncode, result.stderr) == (0, "")
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert lines == [
        ["file", str(path)],
        ["format", "a3m"],
        ["query", "q"],
        ["rows", "4"],
        ["columns", "9"],
        ["Neff", "3.0 (rows of 80% equal columns share a weight of 1)"],
        ["gaps", "36.1% of the cells, 100.0% of the worst row's"],
        ["insertions", "2 residues at 1 places"],
        ["oddity", "'_' read as gaps"],
        ["oddity", "rows equal to an earlier one: 1"],
        ["oddity", "ids that repeat an earlier one: 1"],
        ["oddity", "rows of gaps only: 1"],
        ["oddity", "columns without a residue but the query's: 2"],
        ["oddity", "unknown residues (X) in the query: 1"],
    ]


def test_chains_are_told():
    text = inspect_alignment(CASES / "11_colabfold_complex.a3m")
    assert "chains     8 residues (x1), 4 residues (x1); 2 rows cover all" in text


def test_nothing_odd_is_told():
    for name in ("01_basic.a3m", "38_one_sequence.a3m"):
        assert inspect_alignment(CASES / name).endswith("oddities   none")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([CASES / "41_unaligned.fasta", "out.a3m"], "41_unaligned.fasta: not an alignment, rows have"),
        ([CASES / "01_basic.a3m", "nowhere/out.a3m"], "cannot be written: No such file"),
        ([CASES / "01_basic.a3m", "out"], "the name does not say the format"),
        (["inspect"], "the following arguments are required: OUT"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []
