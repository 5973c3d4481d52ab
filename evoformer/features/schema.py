"""The features by name: their axes, number type and padding. All that `crop` and `collate` know stands here."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evoformer.constants import GAP, N_MSA_LETTERS, N_MSA_TOKENS


@dataclass(frozen=True)
class Feature:
    """How one feature of a sample is laid out.

    Attributes:
        axes: one entry an axis: "N_res", "N_clust", "N_extra" or another name, or an int for a fixed width.
        dtype: the number type the featurizer returns.
        pad: what `collate` writes where a sample has nothing.
    """

    axes: tuple[str | int, ...]
    dtype: torch.dtype = torch.float32
    pad: int | float = 0


FEATURES: Mapping[str, Feature] = {
    "aatype": Feature(("N_res",), torch.int64),
    "residue_index": Feature(("N_res",), torch.int64),
    "seq_mask": Feature(("N_res",)),
    "target_feat": Feature(("N_res", 22)),
    "hhblits_profile": Feature(("N_res", N_MSA_LETTERS)),
    "msa": Feature(("N_clust", "N_res"), torch.int64, pad=GAP),
    "true_msa": Feature(("N_clust", "N_res"), torch.int64, pad=GAP),
    "bert_mask": Feature(("N_clust", "N_res")),
    "msa_mask": Feature(("N_clust", "N_res")),
    "deletion_matrix": Feature(("N_clust", "N_res")),
    "cluster_profile": Feature(("N_clust", "N_res", N_MSA_TOKENS)),
    "cluster_deletion_mean": Feature(("N_clust", "N_res")),
    "msa_feat": Feature(("N_clust", "N_res", 49)),
    "msa_gap_fraction": Feature(("N_clust",)),
    "extra_msa": Feature(("N_extra", "N_res"), torch.int64, pad=GAP),
    "extra_msa_mask": Feature(("N_extra", "N_res")),
    "extra_deletion_matrix": Feature(("N_extra", "N_res")),
    "extra_has_deletion": Feature(("N_extra", "N_res")),
    "extra_deletion_value": Feature(("N_extra", "N_res")),
    "extra_msa_feat": Feature(("N_extra", "N_res", 25)),
    # Of all rows, before they are split: the characters of the file, ASCII. No step leaves it to the end.
    "letters": Feature(("N_seq", "N_res"), torch.uint8),
    # A label: angstroms between residues, NaN where either is unresolved.
    "distances": Feature(("N_res", "N_res"), pad=float("nan")),
}


class FeatureError(ValueError):
    """A feature that nobody declared, or whose shape disagrees with its declaration or with another feature."""


def axis_sizes(
    features: Mapping[str, Tensor] | Mapping[str, NDArray[np.generic]], declared: Mapping[str, Feature] = FEATURES
) -> dict[str, int]:
    """The size of every named axis of one sample, for example {"N_res": 64, "N_clust": 32, "N_extra": 0}.

    Raises:
        FeatureError: a name is not declared, a rank or fixed width is wrong, or two features disagree on an axis.
    """
    sizes: dict[str, int] = {}
    first: dict[str, str] = {}
    for name, value in features.items():
        if name not in declared:
            raise FeatureError(
                f"feature {name!r} is not declared: pass declared={{**FEATURES, {name!r}: Feature(axes)}}"
            )
        axes = declared[name].axes
        if len(value.shape) != len(axes):
            raise FeatureError(f"feature {name!r} has shape {tuple(value.shape)}, its declared axes are {axes}")
        for axis, size in zip(axes, value.shape, strict=True):
            if isinstance(axis, int):
                if size != axis:
                    raise FeatureError(f"feature {name!r} has shape {tuple(value.shape)}, its declared axes are {axes}")
            elif sizes.setdefault(axis, size) != size:
                raise FeatureError(f"{axis} is {size} in feature {name!r}, but {sizes[axis]} in {first[axis]!r}")
            else:
                first.setdefault(axis, name)
    return sizes
