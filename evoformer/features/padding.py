"""Samples padded to fixed sizes, so that all have the same shapes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evoformer.features.schema import FEATURES, Feature, FeatureError, axis_sizes


def pad(
    features: Mapping[str, NDArray[Any]], sizes: Mapping[str, int], declared: Mapping[str, Feature] = FEATURES
) -> dict[str, NDArray[Any]]:
    """Pad axes at their ends; `seq_mask`, `msa_mask` and `extra_msa_mask` are 0 there, as with `collate`.

    Args:
        features: one sample without a batch axis.
        sizes: of the axes to pad, such as {"N_clust": 512, "N_extra": 1024}; others stay as they are.
        declared: the layout of every name, and what it is padded with.

    Raises:
        FeatureError: an axis is longer than asked for, a name is not declared, or shapes disagree.
    """
    for axis, size in axis_sizes(features, declared).items():
        if size > sizes.get(axis, size):
            raise FeatureError(f"{axis} is {size}, too long to be padded to {sizes[axis]}")
    padded = {}
    for name, value in features.items():
        feature = declared[name]
        missing = [
            (0, 0 if isinstance(axis, int) else sizes.get(axis, size) - size)
            for axis, size in zip(feature.axes, value.shape, strict=True)
        ]
        padded[name] = np.pad(value, missing, constant_values=feature.pad)
    return padded
