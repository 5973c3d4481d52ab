"""The steps in which AlphaFold-Multimer's features differ from AlphaFold's: soft clusters and a bare `target_feat`.

They take the places of three steps of `MSAFeaturizer`, by their names:

    featurizer = MSAFeaturizer(max_clusters=508, max_extra=2048, declared=multimer.FEATURES)
    featurizer.steps |= multimer.steps(max_extra=2048)

As in DeepMind's `modules_multimer`.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
from jaxtyping import Float32, Shaped

from evoformer.constants import N_MSA_TOKENS, UNKNOWN
from evoformer.features import schema
from evoformer.features.clustering import HIDDEN, TILE, Centres, Extras, agreement_with_centres, hide
from evoformer.features.profile import one_hot
from evoformer.features.schema import Feature
from evoformer.features.steps import Features, Step, add_model_features

SHARPNESS = 1000.0  # of the softmax over the centres: centres as near as each other share a row, farther ones get none

FEATURES: Mapping[str, Feature] = {**schema.FEATURES, "target_feat": Feature(("N_res", UNKNOWN + 1))}


def steps(*, max_extra: int, gap_agreement_weight: float = 0.0) -> dict[str, Step]:
    """The multimer's steps, by the names of those whose places they take."""
    return {
        "cluster": partial(cluster, gap_agreement_weight=gap_agreement_weight),
        "crop_extra": partial(crop_extra, max_extra=max_extra),
        "model_features": add_multimer_features,
    }


def cluster(features: Features, generator: np.random.Generator, *, gap_agreement_weight: float = 0.0) -> Features:
    """Share each extra row among its nearest centres; adds `cluster_profile` and `cluster_deletion_mean`."""
    masks = {name: features[name] for name in ("msa_mask", "extra_msa_mask")}
    msa, extra_msa = features["msa"], features["extra_msa"]
    weights = cluster_weights(msa, extra_msa, gap_agreement_weight=gap_agreement_weight, **masks)
    profile, deletion_mean = summarize_soft_clusters(
        msa, features["deletion_matrix"], extra_msa, features["extra_deletion_matrix"], weights, **masks
    )
    return features | {"cluster_profile": profile, "cluster_deletion_mean": deletion_mean}


def crop_extra(features: Features, generator: np.random.Generator, *, max_extra: int) -> Features:
    """Keep the first `max_extra` of the extra rows; their order is random already."""
    names = ("extra_msa", "extra_msa_mask", "extra_deletion_matrix")
    return features | {name: features[name][:max_extra] for name in names}


def add_multimer_features(features: Features, generator: np.random.Generator) -> Features:
    """What `add_model_features` adds, with one-hot `aatype` [N_res, 21] alone as `target_feat`."""
    features = add_model_features(features, generator)
    return features | {"target_feat": one_hot(features["aatype"], UNKNOWN + 1)}


def cluster_weights(
    msa: Centres,
    extra_msa: Extras,
    *,
    msa_mask: Shaped[np.ndarray, "N_clust N_res"],
    extra_msa_mask: Shaped[np.ndarray, "N_extra N_res"],
    gap_agreement_weight: float = 0.0,
) -> Float32[np.ndarray, "N_clust N_extra"]:
    """How much each extra row counts in each cluster, where the centre itself counts 1.

    softmax over the centres of 1000 times the number of shared letters, which splits ties evenly, times the number of
    columns that are real in both rows: with L columns an extra row counts L times.

    Args:
        msa: the cluster centres, after the masked-MSA corruption.
        extra_msa: the other rows.
        msa_mask: 1 where a centre's cell is real.
        extra_msa_mask: the same for the other rows.
        gap_agreement_weight: what a gap in both rows is worth.
    """
    weights = np.zeros((len(msa), len(extra_msa)), np.float32)
    for rows, agreement in agreement_with_centres(msa, extra_msa, msa_mask, extra_msa_mask, gap_agreement_weight):
        logits = SHARPNESS * agreement.astype(np.float32)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights[:, rows] = (shares / shares.sum(axis=1, keepdims=True)).T
    common = msa_mask.astype(np.float32) @ extra_msa_mask.astype(np.float32).T
    return weights * common


def summarize_soft_clusters(
    msa: Centres,
    deletions: Shaped[np.ndarray, "N_clust N_res"],
    extra_msa: Extras,
    extra_deletions: Shaped[np.ndarray, "N_extra N_res"],
    weights: Float32[np.ndarray, "N_clust N_extra"],
    *,
    msa_mask: Shaped[np.ndarray, "N_clust N_res"],
    extra_msa_mask: Shaped[np.ndarray, "N_extra N_res"],
) -> tuple[Float32[np.ndarray, "N_clust N_res 23"], Float32[np.ndarray, "N_clust N_res"]]:
    """The weighted letters and the weighted mean number of deletions in each column of each cluster.

    As in AlphaFold-Multimer, every column of a row is divided by the same 1 + the sum of its weights, masked cells or
    not, and the centre's own letter is masked, its deletions are not.

    Args:
        msa: the cluster centres, after the masked-MSA corruption.
        deletions: the number of deletions before each of their residues.
        extra_msa: the other rows.
        extra_deletions: their deletions.
        weights: as `cluster_weights` returns them.
        msa_mask: 1 where a centre's cell is real.
        extra_msa_mask: the same for the other rows.

    Returns:
        cluster_profile: shares of the 23 letters; they add up to 1 only without masked cells.
        cluster_deletion_mean: deletions.
    """
    N_res = msa.shape[1]
    letters = one_hot(hide(msa, msa_mask), HIDDEN + 1)
    inserted = np.where(extra_msa_mask != 0, extra_deletions, 0).astype(np.float32)
    deletion_sum = deletions.astype(np.float32) + weights @ inserted
    centres, rows = np.nonzero(weights)  # a few centres a row
    for start in range(0, len(rows), TILE):
        centre, row = centres[start : start + TILE], rows[start : start + TILE]
        first_cell = centre[:, None] * N_res + np.arange(N_res)
        cells = first_cell * (HIDDEN + 1) + hide(extra_msa[row], extra_msa_mask[row])
        np.add.at(letters.reshape(-1), cells, weights[centre, row][:, None])
    total = 1 + weights.sum(axis=1)
    return letters[..., :N_MSA_TOKENS] / total[:, None, None], deletion_sum / total[:, None]
