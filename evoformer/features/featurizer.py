"""An alignment and a seed to AlphaFold's features.

Letters are numbered in AlphaFold's order, `constants.MSA_ALPHABET` = "ARNDCQEGHILKMFPSTWYVX-" (A 0, R 1, N 2, D 3, C 4,
..., X 20, gap 21), with 22 for the mask token. HHblits' alphabetical numbers (A 0, C 1, D 2, ...), which AlphaFold's
data files hold, appear nowhere.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evoformer.features import steps
from evoformer.features.alignment import Alignment
from evoformer.features.schema import FEATURES, Feature, axis_sizes
from evoformer.features.seeding import Seed, generator_for
from evoformer.features.steps import Step

CROPS = {"contiguous": steps.crop_residues, "spatial": steps.crop_around_residue}


class MSAFeaturizer:
    """An alignment and a seed to AlphaFold's features, without a batch axis.

    The dict `steps` says what is done, by name: "clean" (empty rows; not AlphaFold's), then in AlphaFold's order
    "deduplicate", "profile", "delete_blocks" (if asked for), "sample_rows", "mask", "cluster", "crop_extra",
    "model_features", "crop_residues" and "pad" (if asked for). Change `steps` to leave one out, to put another
    `step(features, generator) -> features` in its place, or to reorder them; each has a random stream of its own,
    which goes by its name. Clusters are made of whole chains, before residues are cropped.

    Args:
        max_clusters: N_clust at most; the query is always the first cluster centre.
        max_extra: N_extra at most; all other rows shape the cluster profiles before the surplus is dropped.
        masked_msa_fraction: how likely a cell of a cluster centre is to be corrupted.
        profile_prob: share of the corrupted cells that show a letter drawn from the column's profile.
        same_prob: share of the corrupted cells left as they are.
        uniform_prob: share that shows one of the twenty amino acids; what is left shows the mask token.
        crop_size: residues at most; None keeps all.
        cropping: which ones: "contiguous", a random stretch, or "spatial", those nearest to a random resolved residue
            by the label "distances", as AlphaFold-Multimer trains.
        pad: pad every sample to `max_clusters`, `max_extra` and, if given, `crop_size`; masks are 0 there.
        clean: drop rows of nothing but gaps first. AlphaFold keeps them, which False does, too: they count in the
            profile and all go to the first cluster.
        deleted_blocks: blocks of neighbouring rows to delete, 5 in AlphaFold's training; see
            `rows_after_block_deletion`.
        block_fraction: the share of all rows in one such block.
        gap_agreement_weight: what a shared gap counts in finding the nearest cluster.
        declared: the layout of every name, for labels and steps of your own: `{**FEATURES, "weight": Feature(...)}`.

    Raises:
        ValueError: a number out of its range.
    """

    def __init__(
        self,
        max_clusters: int = 512,
        max_extra: int = 1024,
        masked_msa_fraction: float = 0.15,
        profile_prob: float = 0.1,
        same_prob: float = 0.1,
        uniform_prob: float = 0.1,
        crop_size: int | None = None,
        *,
        cropping: Literal["contiguous", "spatial"] = "contiguous",
        pad: bool = False,
        clean: bool = True,
        deleted_blocks: int = 0,
        block_fraction: float = 0.3,
        gap_agreement_weight: float = 0.0,
        declared: Mapping[str, Feature] = FEATURES,
    ) -> None:
        _require_at_least(1, max_clusters=max_clusters, crop_size=1 if crop_size is None else crop_size)
        _require_at_least(0, max_extra=max_extra, deleted_blocks=deleted_blocks)
        _require_fraction(
            masked_msa_fraction=masked_msa_fraction,
            profile_prob=profile_prob,
            same_prob=same_prob,
            uniform_prob=uniform_prob,
            block_fraction=block_fraction,
        )
        shares = profile_prob + same_prob + uniform_prob
        if shares > 1 + 1e-9:
            raise ValueError(f"profile_prob, same_prob and uniform_prob add up to {shares:g}, more than 1")
        if cropping not in CROPS:
            raise ValueError(f"cropping must be one of {', '.join(CROPS)}, got {cropping!r}")
        self.declared = declared
        self.steps: dict[str, Step] = {"clean": steps.clean} if clean else {}
        self.steps |= {"deduplicate": steps.deduplicate, "profile": steps.add_profile}
        if deleted_blocks:
            self.steps["delete_blocks"] = partial(steps.delete_blocks, N_block=deleted_blocks, fraction=block_fraction)
        self.steps["sample_rows"] = partial(steps.sample_rows, max_clusters=max_clusters)
        self.steps["mask"] = partial(
            steps.mask_msa,
            fraction=masked_msa_fraction,
            profile_prob=profile_prob,
            same_prob=same_prob,
            uniform_prob=uniform_prob,
        )
        self.steps["cluster"] = partial(steps.cluster, gap_agreement_weight=gap_agreement_weight)
        self.steps["crop_extra"] = partial(steps.crop_extra, max_extra=max_extra)
        self.steps["model_features"] = steps.add_model_features
        sizes = {"N_clust": max_clusters, "N_extra": max_extra}
        if crop_size is not None:
            self.steps["crop_residues"] = partial(CROPS[cropping], size=crop_size, declared=declared)
            sizes["N_res"] = crop_size
        if pad:
            self.steps["pad"] = partial(steps.pad_sample, sizes=sizes, declared=declared)

    def __call__(
        self, alignment: Alignment, seed: Seed, labels: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """The features, N_clust and N_extra as large as the alignment allows; `FEATURES` lists axes and types.

        Args:
            alignment: row 0 is the query.
            seed: a non-negative int of any size, or several, such as (seed, epoch, rank, index). It decides every
                draw; no global random state is read or written.
            labels: what else is known of the chain, such as "distances" (N_res, N_res); a copy is cropped along and
                returned.

        Returns:
            the features by name. All are cropped if the featurizer crops; `msa_gap_fraction` (N_clust,), the share of
            gaps in each centre's true row, is of the whole row.

        Raises:
            ValueError: a seed that is not made of non-negative ints.
            FeatureError: a name that is not declared, or labels whose shape does not fit the alignment.
        """
        features = steps.alignment_features(alignment)
        features |= {name: label.numpy().copy() for name, label in (labels or {}).items()}
        axis_sizes(features, self.declared)  # labels that do not fit, before a step trips over them
        for name, step in self.steps.items():
            features = step(features, generator_for(seed, name))
        axis_sizes(features, self.declared)
        return {name: _to_tensor(value, self.declared[name]) for name, value in features.items()}


def _to_tensor(value: NDArray[Any], feature: Feature) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(value)).to(feature.dtype)


def _require_at_least(least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < least:
            raise ValueError(f"{name} must be at least {least}, got {number}")


def _require_fraction(**numbers: float) -> None:
    for name, number in numbers.items():
        if not 0 <= number <= 1:
            raise ValueError(f"{name} must lie within 0 and 1, got {number}")
