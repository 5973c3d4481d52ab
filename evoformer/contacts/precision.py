"""How many of the highest-scoring pairs are contacts: the measure of every contact prediction here."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from evoformer.constants import CONTACT_DISTANCE, MIN_SEPARATION


class ContactPrecision(NamedTuple):
    """Shares between 0 and 1; NaN where no pair can be judged."""

    top: dict[int, float]  # divisor k -> share of contacts among the top L/k pairs
    chance: float  # share of contacts among all pairs judged: what scores without any knowledge reach


def contact_precision(
    scores: Float[np.ndarray, "N_res N_res"],
    distances: Float[np.ndarray, "N_res N_res"],
    *,
    divisors: Sequence[int] = (1, 2, 5),
    min_separation: int = MIN_SEPARATION,
    cutoff: float = CONTACT_DISTANCE,
) -> ContactPrecision:
    """Precision of the top L/k pairs (i, j) with j - i at least `min_separation` and a known distance.

    L is the number of resolved residues: those with any known distance. L/k is rounded down, but is at least 1; if
    there are fewer pairs, all are taken. Among equal scores the pair with the smaller i, then the smaller j goes first.

    Args:
        scores: the higher, the more likely a contact; only i < j is read.
        distances: in Angstrom between C-betas (C-alpha of glycine), NaN where not resolved.
        divisors: the k.
        min_separation: least distance along the chain, in residues.
        cutoff: a contact is closer than this, in Angstrom.

    Raises:
        ValueError: the two matrices differ in shape, or a score that is needed is NaN.
    """
    if scores.shape != distances.shape or scores.ndim != 2 or scores.shape[0] != scores.shape[1]:
        raise ValueError(
            f"scores have shape {scores.shape}, distances {distances.shape}; expected [L, L], both the same"
        )
    i, j = np.triu_indices(len(distances), max(min_separation, 1))
    known = ~np.isnan(distances[i, j])
    pair_scores, is_contact = scores[i, j][known], distances[i, j][known] < cutoff
    if np.isnan(pair_scores).any():
        raise ValueError(f"{np.isnan(pair_scores).sum()} of {len(pair_scores)} scores are NaN")
    if len(pair_scores) == 0:
        return ContactPrecision({k: float("nan") for k in divisors}, float("nan"))
    ranked = is_contact[np.argsort(-pair_scores, kind="stable")]
    N_resolved = int((~np.isnan(distances)).any(axis=0).sum())
    top = {k: float(ranked[: max(1, N_resolved // k)].mean()) for k in divisors}
    return ContactPrecision(top, float(is_contact.mean()))
