"""alphafold-decoded's names of the trunk's weights: to ours and back.

They are ours with `core.` for `pair_stack.`. Its input embedder reads target features without their first channel,
`has_break`. The column of that channel is written beside the model, under `has_break.`, so that nothing is lost.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from evoformer.weights.names import Array, Found
from evoformer.weights.openfold import to_ours as openfold_to_ours

EMBEDDER = "input_embedder."
READ_TARGET_FEATURES = ("linear_tf_m.weight", "linear_tf_z_i.weight", "linear_tf_z_j.weight")
HAS_BREAK = "has_break."
TF_DIM = 22  # channels of `target_feat` with has_break


def is_decoded(names: Mapping[str, Array]) -> bool:
    """Whether names are alphafold-decoded's: a pair stack called `core`, with the transition of the MSA outside."""
    core = [name for name in names if ".core." in f".{name}"]
    return bool(core) and not any("core.msa_transition." in name for name in core)


def to_ours(arrays: Mapping[str, Array]) -> dict[str, Found]:
    """Tensors under our names; names of other parts of the model stay.

    Raises:
        WeightsError: two names are the same tensor of ours.
    """
    found = openfold_to_ours(arrays)
    for name in READ_TARGET_FEATURES:
        if HAS_BREAK + name in found and EMBEDDER + name in found:
            columns = found.pop(HAS_BREAK + name).array, found[EMBEDDER + name].array
            found[EMBEDDER + name] = Found(_side_by_side(*columns), found[EMBEDDER + name].source)
    return found


def from_ours(named: Mapping[str, Array]) -> dict[str, Array]:
    """Our tensors under alphafold-decoded's names."""
    arrays: dict[str, Array] = {}
    for name, array in named.items():
        part = name.removeprefix(EMBEDDER)
        if part in READ_TARGET_FEATURES and name.startswith(EMBEDDER) and array.shape[1] == TF_DIM:
            arrays[HAS_BREAK + part], arrays[name] = array[:, :1], array[:, 1:]
        else:
            arrays[their_name(name)] = array
    return arrays


def their_name(name: str) -> str:
    """alphafold-decoded's name of a tensor."""
    return f".{name}".replace(".pair_stack.", ".core.")[1:]


def _side_by_side(left: Array, right: Array) -> Array:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return torch.cat([left, right], dim=1)
    return np.concatenate([np.asarray(left), np.asarray(right)], axis=1)
