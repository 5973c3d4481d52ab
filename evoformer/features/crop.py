"""Contiguous crops of residues: every N_res axis of a sample, its labels included, cut alike."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from evoformer.features.schema import FEATURES, Feature, axis_sizes

Array = TypeVar("Array", Tensor, NDArray[Any])


def crop(
    features: Mapping[str, Array], start: int, size: int, declared: Mapping[str, Feature] = FEATURES
) -> dict[str, Array]:
    """Keep the residues start, ..., start + size - 1 of every feature and label.

    Nothing is computed again: cluster profiles, `hhblits_profile` and `msa_gap_fraction` still describe the whole
    chain, as in AlphaFold, which crops last. `residue_index` tells where the crop lies.

    Args:
        features: one sample without a batch axis, of tensors or numpy arrays.
        start: the first residue kept, from 0.
        size: how many residues to keep.
        declared: the layout of every name; see `FEATURES`.

    Returns:
        the same names; the values are views of those given.

    Raises:
        FeatureError: a name that is not declared, or shapes that disagree.
        ValueError: the crop does not lie within the chain.
    """
    N_res = axis_sizes(features, declared).get("N_res", 0)
    if start < 0 or size < 1 or start + size > N_res:
        raise ValueError(f"a crop of residues {start} to {start + size} (exclusive) does not lie within 0 to {N_res}")
    kept = slice(start, start + size)
    return {
        name: value[tuple(kept if axis == "N_res" else slice(None) for axis in declared[name].axes)]
        for name, value in features.items()
    }


def random_crop_start(N_res: int, size: int, generator: np.random.Generator) -> int:
    """The start of a crop of `size` out of `N_res` residues, each possible one equally likely; 0 if nothing is cut."""
    return int(generator.integers(max(N_res - size, 0) + 1))
