"""The steps from an alignment to features, each a function on a dict of arrays that returns a new dict.

AlphaFold 2 supplement, 1.2.6, 1.2.7 and 1.2.9; names and arithmetic as in DeepMind's `data_transforms`. The dict is
one sample, without a batch axis. All steps are called alike, with a generator that some do not need; `split_rows` and
`corrupt` are the halves of `sample_rows` and `mask_msa` that draw nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float32, Integer
from numpy.typing import NDArray

from evoformer.constants import GAP, N_MSA_TOKENS
from evoformer.features.alignment import Alignment
from evoformer.features.clustering import assign_to_clusters, summarize_clusters
from evoformer.features.crop import crop, random_crop_start, random_neighbourhood, take_residues
from evoformer.features.identity import unique_rows
from evoformer.features.masking import draw_letters, mask_positions, replacement_probabilities
from evoformer.features.padding import pad
from evoformer.features.profile import letter_profile, mark_letters
from evoformer.features.sampling import filled_rows, random_row_order, rows_after_block_deletion
from evoformer.features.schema import FEATURES, Feature, FeatureError

Features = dict[str, NDArray[Any]]
Step = Callable[[Features, np.random.Generator], Features]


def alignment_features(alignment: Alignment) -> Features:
    """What the steps start from: `aatype`, `residue_index`, `seq_mask`, and all rows in `msa` and `deletion_matrix`.

    `aatype` has X where the query has B, J, O, U or Z, of which `msa` has D, X, X, C and E, as in AlphaFold. `letters`
    are the characters of the file, which tell such letters apart; they go when rows are split.
    """
    return {
        "aatype": alignment.aatype,
        "letters": alignment.letters,
        "residue_index": np.arange(alignment.N_res),
        "seq_mask": np.ones(alignment.N_res, np.float32),
        "msa": alignment.msa,
        "deletion_matrix": alignment.deletions,
    }


def clean(features: Features, generator: np.random.Generator) -> Features:
    """Drop the rows of nothing but gaps, which AlphaFold keeps; never the query."""
    return _take_rows(features, filled_rows(features["msa"]))


def deduplicate(features: Features, generator: np.random.Generator) -> Features:
    """Drop rows whose letters equal those of an earlier one, which keeps its own deletions.

    As in AlphaFold, two rows that differ only where one has B and the other D both stay: their numbers alone are equal.
    """
    return _take_rows(features, unique_rows(features["letters"]))


def _take_rows(features: Features, rows: Integer[np.ndarray, "N_kept"]) -> Features:
    """Only some of the rows of `msa`, `deletion_matrix` and `letters`."""
    if len(rows) == len(features["msa"]):
        return features
    return features | {name: features[name][rows] for name in ("msa", "deletion_matrix", "letters") if name in features}


def add_profile(features: Features, generator: np.random.Generator) -> Features:
    """Add `hhblits_profile` [N_res, 22], over all rows that `msa` has at this step."""
    return features | {"hhblits_profile": letter_profile(features["msa"])}


def delete_blocks(features: Features, generator: np.random.Generator, *, N_block: int, fraction: float) -> Features:
    """Delete blocks of neighbouring rows."""
    return _take_rows(features, rows_after_block_deletion(len(features["msa"]), N_block, fraction, generator))


def sample_rows(features: Features, generator: np.random.Generator, *, max_clusters: int) -> Features:
    """Draw up to `max_clusters` cluster centres, the query first among them; the other rows become `extra_...`."""
    return split_rows(features, random_row_order(len(features["msa"]), generator), max_clusters)


def split_rows(features: Features, row_order: Integer[np.ndarray, "N_seq"], max_clusters: int) -> Features:
    """Make the first `max_clusters` rows in the order given cluster centres, the others extra rows; all unmasked.

    Sets `msa`, `deletion_matrix`, `msa_mask`, `true_msa`, `bert_mask` (0 everywhere: nothing is corrupted so far),
    `extra_msa`, `extra_deletion_matrix`, `extra_msa_mask`, and `msa_gap_fraction` [N_clust]; `letters` go.
    """
    centres, extra = row_order[:max_clusters], row_order[max_clusters:]
    msa, deletions = features["msa"], features["deletion_matrix"]
    true_msa = msa[centres]
    kept = {name: value for name, value in features.items() if name != "letters"}
    return kept | {
        "msa": true_msa,
        "true_msa": true_msa,
        "bert_mask": np.zeros(true_msa.shape, np.float32),
        "msa_mask": np.ones(true_msa.shape, np.float32),
        "msa_gap_fraction": np.count_nonzero(true_msa == GAP, axis=1) / np.float32(msa.shape[1]),
        "deletion_matrix": deletions[centres].astype(np.float32),
        "extra_msa": msa[extra],
        "extra_msa_mask": np.ones((len(extra), msa.shape[1]), np.float32),
        "extra_deletion_matrix": deletions[extra].astype(np.float32),
    }


def mask_msa(
    features: Features,
    generator: np.random.Generator,
    *,
    fraction: float,
    profile_prob: float,
    same_prob: float,
    uniform_prob: float,
) -> Features:
    """Corrupt a random `fraction` of the cells of the cluster centres: sets `msa`, `true_msa` and `bert_mask`."""
    msa = features["msa"]
    positions = mask_positions(msa.shape, fraction, generator) & (features["msa_mask"] != 0)
    columns = np.nonzero(positions)[1]
    probabilities = replacement_probabilities(
        msa[positions],
        features["hhblits_profile"][columns],
        profile_prob=profile_prob,
        same_prob=same_prob,
        uniform_prob=uniform_prob,
    )
    letters = msa.copy()
    letters[positions] = draw_letters(probabilities, generator)
    return corrupt(features, positions, letters)


def corrupt(
    features: Features,
    positions: NDArray[np.bool_],
    letters: Integer[np.ndarray, "N_clust N_res"],
) -> Features:
    """Show `letters` at the `positions` of `msa`; `true_msa` keeps what stood there, `bert_mask` is 1 there."""
    msa = features["msa"]
    return features | {
        "msa": np.where(positions, letters, msa),
        "true_msa": msa,
        "bert_mask": positions.astype(np.float32),
    }


def cluster(features: Features, generator: np.random.Generator, *, gap_agreement_weight: float = 0.0) -> Features:
    """Give each extra row to its nearest centre; adds `cluster_profile` and `cluster_deletion_mean`."""
    masks = {name: features[name] for name in ("msa_mask", "extra_msa_mask")}
    msa, extra_msa = features["msa"], features["extra_msa"]
    assignment = assign_to_clusters(msa, extra_msa, gap_agreement_weight=gap_agreement_weight, **masks)
    profile, deletion_mean = summarize_clusters(
        msa, features["deletion_matrix"], extra_msa, features["extra_deletion_matrix"], assignment, **masks
    )
    return features | {"cluster_profile": profile, "cluster_deletion_mean": deletion_mean}


def crop_extra(features: Features, generator: np.random.Generator, *, max_extra: int) -> Features:
    """Keep a random `max_extra` of the extra rows, in random order."""
    kept = generator.permutation(len(features["extra_msa"]))[:max_extra]
    return features | {name: features[name][kept] for name in ("extra_msa", "extra_msa_mask", "extra_deletion_matrix")}


def add_model_features(features: Features, generator: np.random.Generator) -> Features:
    """Add what the model reads: `target_feat`, `msa_feat`, `extra_msa_feat` and the two it has of extra deletions."""
    extra_deletions = features["extra_deletion_matrix"]
    has_deletion = np.minimum(extra_deletions, np.float32(1))
    deletion_value = squash_deletions(extra_deletions)
    return features | {
        "target_feat": target_features(features["aatype"]),
        "msa_feat": msa_features(
            features["msa"],
            features["deletion_matrix"],
            features["cluster_profile"],
            features["cluster_deletion_mean"],
        ),
        "extra_has_deletion": has_deletion,
        "extra_deletion_value": deletion_value,
        "extra_msa_feat": extra_msa_features(features["extra_msa"], has_deletion, deletion_value),
    }


def squash_deletions(deletions: NDArray[np.float32]) -> NDArray[np.float32]:
    """A number of deletions d, from 0 up, to (2 / pi) arctan(d / 3), from 0 to 1."""
    return np.arctan(deletions / np.float32(3)) * np.float32(2 / np.pi)


def target_features(
    aatype: Integer[np.ndarray, "N_res"], between_segment_residues: Integer[np.ndarray, "N_res"] | None = None
) -> Float32[np.ndarray, "N_res 22"]:
    """`target_feat`: whether residues are left out before this one, then one-hot `aatype` (21).

    `between_segment_residues`, their number, is 0 in all of AlphaFold's own input, and None stands for that.
    """
    features = np.zeros((len(aatype), 22), np.float32)
    mark_letters(features, aatype + 1)
    if between_segment_residues is not None:
        features[:, 0] = np.clip(between_segment_residues, 0, 1)
    return features


def msa_features(
    msa: Integer[np.ndarray, "N_clust N_res"],
    deletions: Float32[np.ndarray, "N_clust N_res"],
    cluster_profile: Float32[np.ndarray, "N_clust N_res 23"],
    cluster_deletion_mean: Float32[np.ndarray, "N_clust N_res"],
) -> Float32[np.ndarray, "N_clust N_res 49"]:
    """`msa_feat`: one-hot letter (23), has a deletion, deletion value, cluster profile (23), mean deletion value."""
    features = np.zeros((*msa.shape, 49), np.float32)
    mark_letters(features, msa)
    features[..., 23] = np.minimum(deletions, np.float32(1))
    features[..., 24] = squash_deletions(deletions)
    features[..., 25:48] = cluster_profile
    features[..., 48] = squash_deletions(cluster_deletion_mean)
    return features


def extra_msa_features(
    extra_msa: Integer[np.ndarray, "N_extra N_res"],
    has_deletion: Float32[np.ndarray, "N_extra N_res"],
    deletion_value: Float32[np.ndarray, "N_extra N_res"],
) -> Float32[np.ndarray, "N_extra N_res 25"]:
    """`extra_msa_feat`: one-hot letter (23), has a deletion, deletion value."""
    features = np.zeros((*extra_msa.shape, N_MSA_TOKENS + 2), np.float32)
    mark_letters(features, extra_msa)
    features[..., 23] = has_deletion
    features[..., 24] = deletion_value
    return features


def crop_residues(
    features: Features, generator: np.random.Generator, *, size: int, declared: Mapping[str, Feature] = FEATURES
) -> Features:
    """Cut a random contiguous stretch of `size` residues; shorter chains stay whole."""
    N_res = len(features["aatype"])
    start = random_crop_start(N_res, size, generator)
    return crop(features, start, min(size, N_res), declared)


def crop_around_residue(
    features: Features, generator: np.random.Generator, *, size: int, declared: Mapping[str, Feature] = FEATURES
) -> Features:
    """Keep the `size` residues nearest to a random resolved one; shorter chains stay whole.

    Raises:
        FeatureError: the label `distances` is not there.
    """
    if "distances" not in features:
        raise FeatureError("a spatial crop needs the label 'distances', which this sample lacks")
    if len(features["aatype"]) <= size:
        return features
    return take_residues(features, random_neighbourhood(features["distances"], size, generator), declared)


def pad_sample(
    features: Features,
    generator: np.random.Generator,
    *,
    sizes: Mapping[str, int],
    declared: Mapping[str, Feature] = FEATURES,
) -> Features:
    """Pad axes to fixed `sizes`; see `pad`."""
    return pad(features, sizes, declared)
