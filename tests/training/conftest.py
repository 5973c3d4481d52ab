"""Tiny families on disk, and the command line of a training run on them that takes seconds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

LETTERS = np.array(list("ARNDCQEGHILKMFPSTWYV-"))

MODEL = {
    "distance_edges": [4.0, 8.0, 12.0],
    "trunk": {
        "embedder": "profile",
        "N_block": 1,
        "c_m": 6,
        "c_z": 10,
        "c_s": 4,
        "c_msa_att": 3,
        "N_head_msa": 2,
        "c_opm": 5,
        "c_tri_mul": 7,
        "N_head_tri": 0,
        "n_msa_transition": 1,
        "n_pair_transition": 1,
        "column_attention": "global",
        "opm_first": True,
        "opm_centered": True,
        "p_msa": 0.0,  # dropout draws are not part of a checkpoint
        "p_pair": 0.0,
    },
}


def write_family(folder: Path, name: str, N_seq: int, N_res: int, seed: int) -> None:
    """A random alignment whose first two rows have no gap, and distances along a random walk."""
    generator = np.random.default_rng(seed)
    rows = generator.choice(LETTERS, (N_seq, N_res))
    rows[:2] = generator.choice(LETTERS[:20], (2, N_res))
    text = "".join(f">{name}_{k}\n{''.join(row)}\n" for k, row in enumerate(rows))
    walk = generator.normal(0, 3, (N_res, 3)).cumsum(0)
    distances = np.linalg.norm(walk[:, None] - walk[None], axis=-1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.a3m").write_text(text)
    np.savez(folder / f"{name}.npz", distances=distances.astype(np.float16))


@pytest.fixture
def data_folder(tmp_path: Path) -> Path:
    """Five training, two validation and three test families."""
    for split, N_family in (("train", 5), ("validation", 2), ("test", 3)):
        for k in range(N_family):
            write_family(tmp_path / "data" / split, f"{split}{k}", N_seq=9 + k, N_res=17 + 2 * k, seed=k)
    return tmp_path / "data"


@pytest.fixture
def model() -> dict[str, Any]:
    """The configuration of a tiny model."""
    return MODEL


@pytest.fixture
def config_file(tmp_path: Path, data_folder: Path) -> Path:
    """A configuration that trains two steps an epoch on them."""
    config = {
        "seed_everything": 3,
        "out": str(tmp_path / "out"),
        "trainer": {
            "max_epochs": 2,
            "accelerator": "cpu",
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "log_every_n_steps": 1,
        },
        "model": {"warmup_steps": 1, "model": MODEL},
        "data": {
            "path": str(data_folder),
            "batch_size": 2,
            "crop_size": 11,
            "depths": [3, 5],
            "masked_msa_fraction": 0.3,
            "num_workers": 0,
        },
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path
