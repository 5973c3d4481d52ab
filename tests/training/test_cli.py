"""The command line of training: what a run leaves behind, how it goes on, and how it says what is wrong."""

import csv
import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from evoformer.checkpoint import CheckpointError, load_model
from evoformer.config import model_config
from evoformer.errors import InputError
from evoformer.features.families import FamilyError, read_families
from evoformer.files import OutputError
from evoformer.predict import predict
from evoformer.training.cli import ConfigError, main
from evoformer.training.module import ContactModule

ROOT = Path(__file__).parents[2]


def fit(config_file, *more):
    main(["fit", "--config", str(config_file), *map(str, more)])


def steps_of(checkpoint):
    return torch.load(checkpoint, weights_only=True)["global_step"]


@pytest.fixture(autouse=True)
def _own_command_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py"])  # Lightning warns where pytest's own arguments stand beside ours


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def test_a_run_leaves_checkpoints_logs_a_table_and_a_picture(config_file, out, capsys):
    fit(config_file)
    printed = capsys.readouterr().out
    for row in ("trunk, N = 1 ", "trunk, N = 32 ", "trunk, N = 128 ", "columns shuffled", "mean-field DCA", "chance"):
        assert row in printed
    assert "3 held-out families" in printed
    assert max(map(len, printed.split("wrote")[0].splitlines())) <= 80  # as wide as a terminal is at least
    assert "P@L/5" in printed
    assert (out / "contacts.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.reader((out / "precision.tsv").open(), delimiter="\t"))
    assert rows[0][:3] == ["method", "P@L", "P@L_sd"]
    assert all(0 <= float(row[1]) <= 1 for row in rows[1:-1])
    assert steps_of(out / "last.ckpt") == 4
    assert (out / "best.ckpt").is_file()
    assert list(out.glob("csv/version_0/metrics.csv"))
    assert list(out.glob("tensorboard/version_0/events*"))


@pytest.mark.filterwarnings("ignore:skipped:evoformer.features.families.FamilyWarning")
def test_a_run_takes_families_without_labels_and_leaves_unreadable_ones_out(config_file, data_folder, out, tmp_path):
    (data_folder / "train" / "train0.npz").unlink()
    (data_folder / "train" / "train1.a3m").write_text(">q\nMK1\n")
    more = ["--data.unreadable", "skip", "--data.require_labels", "false", "--data.cropping", "spatial"]
    fit(config_file, *more, "--data.cache", tmp_path / "cache")
    assert steps_of(out / "last.ckpt") == 4
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["test", "train", "validation"]
    assert all(parameter.isfinite().all() for parameter in load_model(out / "last.ckpt").parameters())


def test_checkpoints_load_safely_and_give_back_the_model(config_file, out, data_folder):
    fit(config_file)
    checkpoint = torch.load(out / "last.ckpt", weights_only=True)
    assert checkpoint["hyper_parameters"]["model"]["trunk"]["c_z"] == 10
    by_lightning = ContactModule.load_from_checkpoint(out / "last.ckpt")
    assert by_lightning.warmup_steps == 1
    alignment = read_families(data_folder / "test")[0].alignment
    ours = predict(load_model(out / "last.ckpt"), alignment)
    np.testing.assert_array_equal(ours.contacts, predict(by_lightning.model, alignment).contacts)


def test_a_module_built_in_python_writes_the_same_hyper_parameters(config_file, out):
    fit(config_file)
    saved = torch.load(out / "last.ckpt", weights_only=True)["hyper_parameters"]
    config = replace(model_config(saved["model"]), distance_edges=np.array([4, 8, 12]))  # NumPy's do not load safely
    built = ContactModule(config, learning_rate=np.float64(3e-3), warmup_steps=1)
    checkpoint = {}
    built.on_save_checkpoint(checkpoint)
    assert checkpoint["hyper_parameters"] == saved
    torch.save(checkpoint, out / "built.ckpt")
    torch.load(out / "built.ckpt", weights_only=True)


def test_a_run_that_died_goes_on_and_ends_where_an_uninterrupted_one_does(config_file, out, tmp_path, monkeypatch):
    fit(config_file, "--trainer.max_epochs", 3, "--out", tmp_path / "whole")
    training_step = ContactModule.training_step

    def dies_in_the_second_epoch(module, batch, batch_idx):
        if module.global_step == 3:
            raise RuntimeError("the power went out")
        return training_step(module, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(ContactModule, "training_step", dies_in_the_second_epoch)
        with pytest.raises(RuntimeError, match="the power went out"):
            fit(config_file, "--trainer.max_epochs", 3)
    assert steps_of(out / "last.ckpt") == 2
    fit(config_file, "--trainer.max_epochs", 3, "--ckpt_path", "last")
    whole, resumed = (torch.load(folder / "last.ckpt", weights_only=True) for folder in (tmp_path / "whole", out))
    assert resumed["global_step"] == whole["global_step"] == 6
    for name, tensor in whole["state_dict"].items():
        torch.testing.assert_close(resumed["state_dict"][name], tensor)


def test_a_second_run_of_the_same_seed_repeats_the_first(config_file, tmp_path):
    fit(config_file, "--out", tmp_path / "a")
    fit(config_file, "--out", tmp_path / "b")
    fit(config_file, "--out", tmp_path / "c", "--seed_everything", 4)
    a, b, c = (torch.load(tmp_path / run / "last.ckpt", weights_only=True)["state_dict"] for run in "abc")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not all(torch.equal(a[name], c[name]) for name in a)


def test_test_shows_the_table_of_the_last_checkpoint(config_file, out, capsys):
    fit(config_file)
    table = (out / "precision.tsv").read_text()
    (out / "precision.tsv").unlink()
    capsys.readouterr()
    main(["test", "--config", str(config_file)])
    assert (out / "precision.tsv").read_text() == table
    assert "columns shuffled" in capsys.readouterr().out


def test_resuming_without_a_last_checkpoint_is_an_error_not_a_fresh_run(config_file, out):
    with pytest.raises(CheckpointError, match=r"no checkpoint .*last\.ckpt to go on from"):
        fit(config_file, "--ckpt_path", "last")
    assert not (out / "last.ckpt").exists()


def test_a_missing_checkpoint_is_named(config_file, tmp_path):
    with pytest.raises(CheckpointError, match=r"no checkpoint at .*none\.ckpt"):
        fit(config_file, "--ckpt_path", tmp_path / "none.ckpt")


def test_a_checkpoint_of_another_architecture_is_named_with_both_values(config_file):
    fit(config_file)
    with pytest.raises(CheckpointError, match="another architecture: c_z is 10 there, 12 in this configuration"):
        fit(config_file, "--ckpt_path", "last", "--model.model.trunk.c_z", 12)


def test_a_misspelt_key_is_named(config_file):
    config = yaml.safe_load(config_file.read_text())
    config["model"]["learning_rat"] = 0.1
    config_file.write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigError, match="learning_rat"):
        fit(config_file)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--model.model.trunk.c_m", -3, "c_m is -3, expected a whole number of at least 1"),
        ("--model.model.trunk.N_block", -1, "N_block is -1, expected a whole number of at least 0"),
        ("--model.model.trunk.p_msa", 2, "p_msa is 2.0, expected 0 to 1"),
        ("--model.model.distance_edges", "[9]", r"must ascend from 8.0 A or below, they are \[9.0\]"),
        ("--model.learning_rate", 0, "learning_rate is 0.0, expected more than 0"),
        ("--model.warmup_steps", -1, "warmup_steps is -1, expected 0 or more"),
        ("--data.batch_size", 0, "batch_size is 0, expected at least 1"),
        ("--data.depths", "[]", r"depths is \[\], expected at least 1"),
        ("--data.masked_msa_fraction", 2, "masked_msa_fraction is 2.0, expected 0 to 1"),
        ("--data.crop", 3, "nrecognized arguments: --data.crop"),
        ("--threads", 0, "threads"),
        ("--seed_everything", -1, "seed_everything is -1, expected 0 to"),
        ("--trainer.precision", "bf17", "trainer.precision"),
        ("--trainer.accelerator", "abacus", "abacus"),
        ("--trainer.max_epochs", -5, "max_epochs"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(config_file, option, value, message):
    with pytest.raises(ConfigError, match=message):
        fit(config_file, option, value)


@pytest.mark.parametrize("content", [b"model: [a\n b: {", b"", b"just text", b"\xac\xff"])
def test_a_damaged_configuration_is_named(config_file, content):
    config_file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"config .*config\.yaml"):
        fit(config_file)


@pytest.mark.parametrize(
    ("words", "message"), [([], "fit,test"), (["fit"], "no configuration given"), (["fly"], "fly")]
)
def test_a_command_line_that_lacks_something_says_what(words, message):
    with pytest.raises(ConfigError, match=message):
        main(words)


def test_held_out_families_are_read_before_the_training(config_file, data_folder, out):
    (data_folder / "test" / "test1.npz").unlink()
    with pytest.raises(FamilyError, match=r"test1\.a3m has no labels"):
        fit(config_file)
    assert not (out / "last.ckpt").exists()


def test_training_without_end_is_refused(config_file):
    with pytest.raises(InputError, match="set the trainer's max_epochs or max_steps"):
        fit(config_file, "--trainer.max_epochs", -1)


def test_packages_that_are_not_there_are_named_before_the_training(config_file, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name))
    with pytest.raises(InputError, match=r"matplotlib not installed: pip install 'evoformer\[train\]'"):
        fit(config_file)


def test_a_checkpoint_without_its_training_is_named(config_file, out):
    fit(config_file)
    checkpoint = torch.load(out / "last.ckpt", weights_only=True)
    del checkpoint["loops"]
    torch.save(checkpoint, out / "last.ckpt")
    with pytest.raises(CheckpointError, match=r"last\.ckpt holds a model, but no training: it lacks loops"):
        fit(config_file, "--ckpt_path", "last")


def test_a_folder_without_alignments_is_named(config_file, tmp_path):
    with pytest.raises(FamilyError, match=r"0 alignments under .*nothing/train"):
        fit(config_file, "--data.path", tmp_path / "nothing")


def test_an_output_folder_that_cannot_be_written_is_named(config_file, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write to output folder .*file/out"):
        fit(config_file, "--out", tmp_path / "file" / "out")


@pytest.mark.parametrize("error", [CheckpointError, ConfigError, FamilyError, OutputError])
def test_scripts_know_every_error(error):
    assert issubclass(error, InputError)


def test_the_script_reports_an_error_in_one_line_and_fails(config_file, tmp_path):
    command = [sys.executable, ROOT / "scripts" / "train.py", "fit", "--config", config_file, "--data.path", "nothing"]
    run = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 1
    assert run.stderr.startswith("error: 0 alignments under nothing/train")
    assert len(run.stderr.splitlines()) == 1
