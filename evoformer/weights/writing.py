"""Tensors by name to files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evoformer.files import writable_folder, written_whole
from evoformer.weights.names import Array, Layout


def write_weights(arrays: Mapping[str, Array], path: str | Path, layout: Layout) -> None:
    """Write safetensors where the file's name ends so; else an .npz archive in AlphaFold's layouts, or PyTorch's file.

    Raises:
        OutputError: the folder cannot be written to.
    """
    path = Path(path)
    writable_folder(path.parent)
    with written_whole(path) as temporary:
        if path.suffix == ".safetensors":
            from safetensors.torch import save_file

            save_file({name: _alone(as_tensor(array)) for name, array in arrays.items()}, temporary)
        elif layout in ("alphafold", "alphafold_fused"):
            with temporary.open("wb") as file:
                members: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
                np.savez(file, **members)
        else:
            torch.save({name: _alone(as_tensor(array)) for name, array in arrays.items()}, temporary)


def as_tensor(array: Array) -> Tensor:
    """A tensor on its device; of an array, a copy."""
    return array.detach() if isinstance(array, Tensor) else torch.from_numpy(np.array(array))


def _alone(tensor: Tensor) -> Tensor:
    """A contiguous tensor on the CPU that shares no memory with a larger one, which would be written in its place."""
    tensor = tensor.cpu().contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()
