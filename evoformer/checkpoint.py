"""Training checkpoints: read safely, and made models again."""

import textwrap
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evoformer.config import ModelConfig, model_config
from evoformer.errors import InputError
from evoformer.model import ContactModel
from evoformer.weights.names import WeightsError
from evoformer.weights.reading import read_torch


class CheckpointError(InputError):
    """A checkpoint is missing, cannot be read, or holds another model."""


def load_model(path: str | Path) -> ContactModel:
    """The model of a checkpoint that `scripts/train.py` has written, on the CPU and in evaluation mode.

    Raises:
        CheckpointError: there is no such file, it cannot be read safely, or it holds another model.
    """
    return model_of(read_checkpoint(path), path)


def model_of(checkpoint: Mapping[str, Any], path: str | Path) -> ContactModel:
    """The model in what `read_checkpoint` returns; the path is for the error.

    Raises:
        CheckpointError: the checkpoint holds another kind of model, or its weights do not fit.
    """
    model = ContactModel(checkpoint_config(checkpoint, path))
    state = {
        name.removeprefix("model."): tensor
        for name, tensor in checkpoint["state_dict"].items()
        if name.startswith("model.")
    }
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).split("\n\t")[1] if "\n\t" in str(error) else str(error)
        reason = textwrap.shorten(reason, 200, placeholder=" ...")
        raise CheckpointError(f"checkpoint {path} does not fit its own configuration: {reason}") from error
    return model.eval()


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The content of a checkpoint, read without running any code that a pickle may hold.

    Raises:
        CheckpointError: there is no such file, or it cannot be read safely.
    """
    if not Path(path).is_file():
        raise CheckpointError(f"no checkpoint at {path}; training writes last.ckpt and best.ckpt to its output folder")
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:  # PyTorch writes checksums, and does not look at them
                if (part := archive.testzip()) is not None:
                    raise WeightsError(f"incomplete or damaged: the checksum of {part} is wrong")
        checkpoint = read_torch(path)
    except (WeightsError, zipfile.BadZipFile, NotImplementedError) as error:
        raise CheckpointError(f"{path} cannot be read as a checkpoint: {error}") from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise CheckpointError(f"{path} is no training checkpoint: it has no 'state_dict'")
    return checkpoint


def checkpoint_config(checkpoint: Mapping[str, Any], path: str | Path) -> ModelConfig:
    """The configuration of the model in a checkpoint.

    Raises:
        CheckpointError: the checkpoint holds another kind of model.
    """
    try:
        return model_config(checkpoint["hyper_parameters"]["model"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path} holds another kind of model: {error!r}") from error
