"""Crops of residues, in a stretch or around a place: every N_res axis of a sample, its labels included, cut alike."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int64
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
    return _take(features, slice(start, start + size), declared)


def take_residues(
    features: Mapping[str, Array], residues: Int64[np.ndarray, "N_kept"], declared: Mapping[str, Feature] = FEATURES
) -> dict[str, Array]:
    """Keep the residues of these numbers, from 0, of every feature and label, in their order; else as `crop`.

    Raises:
        FeatureError: a name that is not declared, or shapes that disagree.
        ValueError: no residue, or one that does not lie within the chain.
    """
    N_res = axis_sizes(features, declared).get("N_res", 0)
    if not len(residues):
        raise ValueError("a crop needs at least one residue, got 0")
    if residues.min() < 0 or residues.max() >= N_res:
        raise ValueError(f"residues {residues.min()} to {residues.max()} do not lie within 0 to {N_res} (exclusive)")
    return _take(features, residues, declared)


def _take(
    features: Mapping[str, Array], residues: slice | Int64[np.ndarray, "N_kept"], declared: Mapping[str, Feature]
) -> dict[str, Array]:
    return {name: _take_from(value, residues, declared[name]) for name, value in features.items()}


def _take_from(value: Array, residues: slice | Int64[np.ndarray, "N_kept"], feature: Feature) -> Array:
    axes: list[int] = [axis for axis, label in enumerate(feature.axes) if label == "N_res"]
    for axis in axes:
        before: tuple[Any, ...] = (slice(None),) * axis
        value = value[(*before, residues)]
    return value


def random_crop_start(N_res: int, size: int, generator: np.random.Generator) -> int:
    """The start of a crop of `size` out of `N_res` residues, each possible one equally likely; 0 if nothing is cut."""
    return int(generator.integers(max(N_res - size, 0) + 1))


def random_neighbourhood(
    distances: Float[np.ndarray, "N_res N_res"], size: int, generator: np.random.Generator
) -> Int64[np.ndarray, "N_kept"]:
    """The `size` residues nearest to a random resolved one, itself included, in ascending order.

    AlphaFold-Multimer, Algorithm 2, with any resolved residue in the place of one at an interface. Of residues equally
    far the first ones are taken; those that are not resolved come last. Without any resolved residue it is a random
    stretch.

    Args:
        distances: between residues, NaN where either is not resolved.
        size: how many residues to keep at most.
        generator: of the residue in the middle.
    """
    resolved = np.flatnonzero(~np.isnan(np.diagonal(distances)))
    if not len(resolved):
        start = random_crop_start(len(distances), size, generator)
        return np.arange(start, min(start + size, len(distances)))
    middle = generator.choice(resolved)
    return np.sort(np.argsort(distances[middle], kind="stable")[:size])  # NaN comes last
