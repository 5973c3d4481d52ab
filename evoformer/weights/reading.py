"""Files of weights, and dicts of them, to tensors by name. What a file is shows in its content, not in its name."""

import pickle
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evoformer.weights.names import Array, WeightsError
from evoformer.weights.npz import read_npz

# Where a checkpoint keeps its weights; averaged ones come first, as in OpenFold.
AVERAGED, AVERAGED_WEIGHTS = "ema", "params"
WEIGHTS = ("state_dict", "model_state_dict", "module", "model")


def read_weights(source: str | Path | Mapping[str, Any]) -> dict[str, Array]:
    """The tensors of a file or of a dict, by the names that they have there.

    Args:
        source: an .npz, a PyTorch or a safetensors file, or what such a file holds: names to arrays or tensors, a
            checkpoint with such a dict inside, or Haiku's dict of dicts.

    Raises:
        WeightsError: there is no such file, it is incomplete, holds code or no tensors, or is of another kind.
    """
    if isinstance(source, Mapping):
        content, label = source, "the dict given"
    else:
        content, label = _read_file(Path(source)), str(source)
    arrays = _tensors(content)
    if not arrays:
        raise WeightsError(f"{label} holds no tensors; its entries are {', '.join(map(str, list(content)[:8]))}")
    return arrays


def _read_file(path: Path) -> Mapping[str, Any]:
    """What a file holds."""
    if not path.is_file():
        raise WeightsError(f"no file of weights at {path}")
    try:
        with path.open("rb") as file:
            start = file.read(9)
        if start[8:] == b"{":  # after the length of the header, which may look like anything
            content = _read_safetensors(path)
        elif start.startswith(b"PK"):
            content = _read_zip(path)
        elif start.startswith(b"\x80"):
            content = read_torch(path)
        elif len(start) < 9:
            raise WeightsError(f"incomplete: it has {len(start)} bytes")
        else:
            raise WeightsError(f"neither .npz nor PyTorch nor safetensors; it begins with {start!r}")
    except WeightsError as error:
        raise WeightsError(f"{path} cannot be read as weights: {error}") from error
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(content, Mapping):
        raise WeightsError(f"{path} holds no names: it is a {type(content).__name__}")
    return content


def _read_zip(path: Path) -> Any:
    """An .npz archive or a file of PyTorch's."""
    if not zipfile.is_zipfile(path):
        raise WeightsError("incomplete: the end of the archive is missing; copy or download it again")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        if any(name.endswith(".npy") for name in names):
            return read_npz(path)
    except (zipfile.BadZipFile, EOFError, ValueError, OSError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"incomplete or damaged: {error}") from error
    return read_torch(path)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    """A safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise WeightsError(f"incomplete or damaged: {error}") from error


def read_torch(path: str | Path) -> Any:
    """What `torch.save` has written, on the CPU, read without running any code that a pickle may hold.

    Tensors of a file that is not of the oldest kind are maps of the file.

    Raises:
        WeightsError: it is incomplete, asks to run code, or is no file of PyTorch's.
    """
    try:
        if Path(path).suffix == ".safetensors":  # torch.load goes by the name; of an open file it sees none
            with Path(path).open("rb") as file:
                return torch.load(file, map_location="cpu", weights_only=True)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        if code := re.search(r"GLOBAL (\S+)", str(error)):
            raise WeightsError(f"refused: its pickle asks for {code[1]}, and only tensors are read") from error
        reason = str(error).rpartition("error: ")[2].strip().partition("\n")[0]
        raise WeightsError(f"refused: its pickle holds other things than tensors ({reason})") from error
    except (RuntimeError, EOFError, OSError, LookupError, ValueError, TypeError, struct.error) as error:
        raise WeightsError(f"incomplete or damaged: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _tensors(content: Mapping[str, Any]) -> dict[str, Array]:
    """The tensors of a dict: of the dict of weights inside a checkpoint, or of Haiku's dict of dicts."""
    averaged = content.get(AVERAGED)
    if isinstance(averaged, Mapping) and isinstance(averaged.get(AVERAGED_WEIGHTS), Mapping):
        return _tensors(averaged[AVERAGED_WEIGHTS])
    for name in WEIGHTS:
        if isinstance(content.get(name), Mapping):
            return _tensors(content[name])
    arrays: dict[str, Array] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            arrays.update({f"{name}//{inner}": array for inner, array in _tensors(value).items()})
        elif isinstance(value, Tensor):
            arrays[name] = value
        elif hasattr(value, "__array__"):
            array = np.asarray(value)
            if array.dtype.kind in "fiu":
                arrays[name] = array
    return arrays
