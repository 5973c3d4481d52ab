"""Prediction: files out of alignments and a checkpoint, and one clear error for what does not fit."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_model import SMALL, random_weights

from evoformer.checkpoint import CheckpointError, load_model
from evoformer.config import ModelConfig, TrunkConfig
from evoformer.errors import InputError
from evoformer.features.alignment import AlignmentError
from evoformer.features.reading import read_alignment
from evoformer.features.structure import StructureError
from evoformer.files import OutputError
from evoformer.model import ContactModel
from evoformer.predict import predict, predict_files

ROOT = Path(__file__).parents[1]
QUERY = "MKTAYWQLNDEG"
NAMES = {
    "A": "ALA", "D": "ASP", "E": "GLU", "G": "GLY", "K": "LYS", "L": "LEU", "M": "MET", "N": "ASN", "Q": "GLN",
    "T": "THR", "W": "TRP", "Y": "TYR",
}  # fmt: skip


@pytest.fixture
def alignment(tmp_path):
    path = tmp_path / "family.a3m"
    path.write_text(f">query\n{QUERY}\n>a\nMKSAYWQL-DEG\n>b\n-KTAYWghQLNDEG\n>c\nMRTAFWQIND--\n")
    return path


@pytest.fixture
def checkpoint(tmp_path):
    """What training writes, as far as a prediction reads it."""
    from dataclasses import asdict

    config = ModelConfig(trunk=TrunkConfig(embedder="profile", **SMALL), distance_edges=[4.0, 8.0, 12.0])
    model = random_weights(ContactModel(config))
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save({"state_dict": state, "hyper_parameters": {"model": asdict(config)}}, tmp_path / "small.ckpt")
    return tmp_path / "small.ckpt"


@pytest.fixture
def structure(tmp_path):
    """A helix of the query's residues, C-alpha atoms only, in chain B."""
    lines = []
    for k, letter in enumerate(QUERY):
        x, y, z = 2.3 * np.cos(1.745 * k), 2.3 * np.sin(1.745 * k), 1.5 * k
        lines.append(
            f"ATOM  {k + 1:5d}  CA  {NAMES[letter]} B{k + 1:4d}    {x:8.3f}{y:8.3f}{z:8.3f}  1.00  0.00           C"
        )
    path = tmp_path / "helix.pdb"
    path.write_text("\n".join([*lines, "TER", "END", ""]))
    return path


def test_an_alignment_becomes_a_table_an_archive_and_a_picture(alignment, checkpoint, tmp_path, capsys):
    predict_files([alignment], checkpoint, tmp_path / "out")
    assert "family: 4 rows, 12 residues" in capsys.readouterr().out
    assert (tmp_path / "out" / "family.png").read_bytes().startswith(b"\x89PNG")
    with np.load(tmp_path / "out" / "family.npz") as archive:
        assert str(archive["query"]) == QUERY
        shapes = {name: archive[name].shape for name in archive.files}
        contacts = archive["contacts"]
        np.testing.assert_allclose(archive["distogram"].sum(-1), 1, rtol=1e-5)
        np.testing.assert_allclose(archive["distogram"][..., :2].sum(-1), contacts, rtol=1e-5)
    assert shapes == {
        "query": (), "contacts": (12, 12), "distogram": (12, 12, 4), "distance_edges": (3,), "m": (4, 12, 6),
        "z": (12, 12, 10), "s": (12, 4),
    }  # fmt: skip
    header, *rows = [line.split("\t") for line in (tmp_path / "out" / "family.tsv").read_text().splitlines()]
    assert header == ["i", "j", "residue_i", "residue_j", "probability"]
    assert len(rows) == 6 * 7 // 2  # pairs six or more apart
    for i, j, residue_i, residue_j, probability in rows:
        assert (residue_i, residue_j) == (QUERY[int(i) - 1], QUERY[int(j) - 1])
        assert float(probability) == pytest.approx(contacts[int(i) - 1, int(j) - 1], abs=6e-5)
    probabilities = [float(row[4]) for row in rows]
    assert probabilities == sorted(probabilities, reverse=True)


def test_a_structure_is_compared_with(alignment, checkpoint, structure, tmp_path, capsys):
    predict_files([alignment], checkpoint, tmp_path / "out", structure=[f"{structure}:B"], dca=True)
    printed = capsys.readouterr().out
    for method in ("trunk", "mean-field DCA"):
        # A helix has no contact six residues apart.
        assert f"precision of {method}: P@L 0.000, P@L/2 0.000, P@L/5 0.000; of random pairs 0.000" in printed


def test_the_seed_decides_which_rows_are_read(checkpoint):
    model = load_model(checkpoint)
    many = read_alignment(ROOT / "tests" / "cases" / "55_forty_rows.a3m")
    first = predict(model, many, max_seqs=5, seed=1)
    np.testing.assert_array_equal(first.contacts, predict(model, many, max_seqs=5, seed=1).contacts)
    assert not np.array_equal(first.contacts, predict(model, many, max_seqs=5, seed=2).contacts)
    assert first.m.shape[0] == 5


def test_predicting_leaves_a_model_in_its_mode(checkpoint, alignment):
    model = load_model(checkpoint).train()
    predict(model, read_alignment(alignment))
    assert model.training


def test_a_structure_of_another_protein_is_refused(alignment, checkpoint, structure, tmp_path):
    alignment.write_text(">query\nWWWWCCCCHHHHPPPP\n")
    with pytest.raises(StructureError, match=r"the query has 16 residues, chain 'B' of helix.pdb has 12"):
        predict_files([alignment], checkpoint, tmp_path / "out", structure=[str(structure)])


def test_a_chain_that_is_not_there_is_named(alignment, checkpoint, structure, tmp_path):
    with pytest.raises(StructureError, match=r"no protein chain 'Q'; the protein chains are B"):
        predict_files([alignment], checkpoint, tmp_path / "out", structure=[f"{structure}:Q"])


def test_structures_must_be_as_many_as_alignments(alignment, checkpoint, structure, tmp_path):
    with pytest.raises(InputError, match="2 alignments, but 1 structures"):
        predict_files([alignment, structure], checkpoint, tmp_path / "out", structure=[str(structure)])


def test_alignments_of_the_same_name_are_refused(alignment, checkpoint, tmp_path):
    with pytest.raises(InputError, match="2 alignments are called family"):
        predict_files([alignment, tmp_path / "more" / "family.sto"], checkpoint, tmp_path / "out")


def test_an_alignment_that_is_not_there_is_named(checkpoint, tmp_path):
    with pytest.raises(AlignmentError, match=r"none\.a3m: no such file"):
        predict_files([tmp_path / "none.a3m"], checkpoint, tmp_path / "out")


def test_an_output_folder_that_cannot_be_written_is_named(alignment, checkpoint):
    with pytest.raises(OutputError, match=r"cannot write to output folder .*family\.a3m/out"):
        predict_files([alignment], checkpoint, alignment / "out")


def test_a_missing_checkpoint_is_named(alignment, tmp_path):
    with pytest.raises(CheckpointError, match=r"no checkpoint at .*none\.ckpt"):
        predict_files([alignment], tmp_path / "none.ckpt", tmp_path / "out")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"no checkpoint at all"])
def test_a_file_that_is_no_checkpoint_is_named(content, tmp_path):
    (tmp_path / "bad.ckpt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"bad\.ckpt cannot be read as a checkpoint"):
        load_model(tmp_path / "bad.ckpt")


def test_a_checkpoint_with_damaged_weights_is_named(checkpoint):
    content = bytearray(checkpoint.read_bytes())
    weights = torch.load(checkpoint, weights_only=True)["state_dict"]["model.trunk.evoformer.linear.weight"]
    place = content.index(weights.numpy().tobytes())
    content[place] ^= 1
    checkpoint.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"small\.ckpt cannot be read as a checkpoint: .* damaged"):
        load_model(checkpoint)


def test_a_pickle_with_code_in_it_is_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"state_dict": {}, "hyper_parameters": Trap()}, tmp_path / "trap.ckpt")
    with pytest.raises(CheckpointError, match=r"trap\.ckpt cannot be read as a checkpoint"):
        load_model(tmp_path / "trap.ckpt")
    assert not (tmp_path / "ran").exists()


def test_a_checkpoint_of_another_kind_of_model_is_named(checkpoint):
    content = torch.load(checkpoint, weights_only=True)
    del content["hyper_parameters"]
    torch.save(content, checkpoint)
    with pytest.raises(CheckpointError, match="holds another kind of model"):
        load_model(checkpoint)
    torch.save({"weights": 1}, checkpoint)
    with pytest.raises(CheckpointError, match="no training checkpoint"):
        load_model(checkpoint)


def test_a_checkpoint_whose_weights_do_not_fit_names_the_first(checkpoint):
    content = torch.load(checkpoint, weights_only=True)
    content["hyper_parameters"]["model"]["trunk"]["c_z"] = 12
    torch.save(content, checkpoint)
    with pytest.raises(CheckpointError, match=r"does not fit its own configuration: size mismatch for .*\[10"):
        load_model(checkpoint)


def test_the_script_reports_an_error_in_one_line_and_fails(alignment, tmp_path):
    script = ROOT / "scripts" / "predict.py"
    command = [sys.executable, script, alignment, "--checkpoint", tmp_path / "none.ckpt", "--out", tmp_path / "out"]
    run = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.startswith("error: no checkpoint at")
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize("more", [[], ["--checkpoint", "a.ckpt", "--out", "out", "--max-seqs", "many"]])
def test_the_script_reports_a_wrong_command_line_in_one_line(more):
    run = subprocess.run([sys.executable, ROOT / "scripts" / "predict.py", *more], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.startswith("error: ")
    assert len(run.stderr.splitlines()) == 1
