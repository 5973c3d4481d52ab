"""Samples of different sizes padded and stacked into one batch."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from evoformer.features.schema import FEATURES, Feature, FeatureError, axis_sizes


def collate(samples: Sequence[Mapping[str, Tensor]], declared: Mapping[str, Feature] = FEATURES) -> dict[str, Tensor]:
    """Pad every named axis to the longest in the batch and stack the samples along a new first axis.

    Masks are padded with 0, MSA letters with the gap, "distances" with NaN, other features with 0: see `FEATURES`.

    Args:
        samples: feature dicts as `MSAFeaturizer` returns them, all with the same names; labels such as
            "distances" (N_res, N_res) may be among them.
        declared: the layout of every name. Features of your own: `{**FEATURES, "weight": Feature(("N_res",))}`.

    Returns:
        the same names, each (N_sample, *axes).

    Raises:
        FeatureError: no samples, a name that is not declared or that one sample lacks, or shapes that disagree.
    """
    if not samples:
        raise FeatureError("a batch needs at least one sample, got 0")
    names = samples[0].keys()
    for index, sample in enumerate(samples):
        if sample.keys() != names:
            difference = ", ".join(sorted(sample.keys() ^ names))
            raise FeatureError(f"samples 0 and {index} of the batch differ in their features: {difference}")
    each = [axis_sizes(sample, declared) for sample in samples]
    longest = {axis: max(sizes[axis] for sizes in each) for axis in each[0]}
    return {name: _pad_and_stack([sample[name] for sample in samples], declared[name], longest) for name in names}


def _pad_and_stack(values: list[Tensor], feature: Feature, longest: Mapping[str, int]) -> Tensor:
    shape = [axis if isinstance(axis, int) else longest[axis] for axis in feature.axes]
    batch = torch.full([len(values), *shape], feature.pad, dtype=values[0].dtype, device=values[0].device)
    for row, value in zip(batch, values, strict=True):
        row[tuple(slice(size) for size in value.shape)] = value
    return batch
