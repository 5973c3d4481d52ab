"""Conversion of files on the command line."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from golden_models import PARAMS, arrays, assert_same_weights, extra_stack, main_stack

from evoformer import load_weights
from evoformer.weights.convert import convert_weights

SCRIPT = Path(__file__).parents[2] / "scripts" / "convert_weights.py"


def test_alphafolds_file_goes_to_openfold_to_decoded_and_back(tmp_path):
    convert_weights(PARAMS, tmp_path / "openfold.pt", "openfold")
    convert_weights(tmp_path / "openfold.pt", tmp_path / "decoded.safetensors", "decoded")
    convert_weights(tmp_path / "decoded.safetensors", tmp_path / "fused.npz", "alphafold_fused")
    text = convert_weights(tmp_path / "fused.npz", tmp_path / "back.npz", "alphafold")
    params, back = arrays(PARAMS), arrays(tmp_path / "back.npz")
    assert set(params) - set(back) == {name for name in params if "structure_module" in name}
    for name, array in back.items():
        np.testing.assert_array_equal(array, params[name], err_msg=name)
    assert f"{len(back)} tensors written" in text
    assert "left out" not in text


@pytest.mark.parametrize("make", [main_stack, extra_stack])
def test_a_converted_file_loads_as_the_first_does(tmp_path, make):
    convert_weights(PARAMS, tmp_path / "openfold.pt", "openfold")
    loaded, expected = make(), make()
    load_weights(loaded, tmp_path / "openfold.pt")
    load_weights(expected, PARAMS)
    assert_same_weights(loaded, expected)


def test_the_script_says_what_it_left_out(tmp_path):
    command = [sys.executable, str(SCRIPT), str(PARAMS), str(tmp_path / "out.pt"), "--layout", "openfold"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "(layout openfold): 408 tensors written" in done.stdout
    assert "45 left out: alphafold/alphafold_iteration/structure_module" in done.stdout


def test_the_script_reports_a_mistake_in_one_line(tmp_path):
    (tmp_path / "half.npz").write_bytes(PARAMS.read_bytes()[:50_000])
    for source, words in (("half.npz", "incomplete"), ("none.npz", "no file of weights at")):
        command = [sys.executable, str(SCRIPT), str(tmp_path / source), str(tmp_path / "out.pt")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("error: ")
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.pt").exists()


def test_a_file_of_something_else_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", distances=np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"other\.npz holds nothing of the trunk; its names are distances"):
        convert_weights(tmp_path / "other.npz", tmp_path / "out.pt")
