"""The Python of the README and of the page on speed and memory runs as it stands."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from evoformer import EvoformerBlock

ROOT = Path(__file__).parents[1]
README, PERFORMANCE = ((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/performance.md"))
SNIPPETS = [code for page in (README, PERFORMANCE) for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]


def test_there_are_snippets():
    assert len(SNIPPETS) >= 3


@pytest.mark.parametrize("code", SNIPPETS, ids=lambda code: code.splitlines()[-1][:40])
def test_a_snippet_runs(code, tmp_path, monkeypatch):
    (tmp_path / "data").symlink_to(ROOT / "data")
    monkeypatch.chdir(tmp_path)
    # What the snippet on structures expects to find.
    (tmp_path / "family.a3m").write_text(">q\nAAAAAA\n")
    atoms = [
        f"ATOM  {k:5d}  CA  ALA A{k:4d}    {3.8 * k:8.3f}{0:8.3f}{0:8.3f}  1.00  0.00           C" for k in range(1, 7)
    ]
    (tmp_path / "1abc.cif").write_text("\n".join([*atoms, "TER", "END", ""]))
    if "params_model_1_ptm.npz" in code:
        state = {f"evoformer.blocks.7.{name}": tensor for name, tensor in EvoformerBlock().state_dict().items()}
        torch.save(state, tmp_path / "params_model_1_ptm.npz")  # the name plays no part
    exec(code, {})
    if "np.savez" in code:
        with np.load(tmp_path / "family.npz") as labels:
            assert labels["distances"][0, 2] == pytest.approx(7.6)


@pytest.mark.parametrize("target", re.findall(r"\]\(((?!https?:)[^)#]+)\)", README))
def test_what_the_readme_points_to_is_there(target):
    assert (ROOT / target).is_file()
