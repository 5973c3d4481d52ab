"""The masked-MSA corruption: which cells of the MSA are hidden, and what is shown in their place.

AlphaFold 2 supplement, 1.2.7. Positions and replacement letters both come from the generator given.
"""

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64, Integer

from evoformer.constants import MASK, N_MSA_LETTERS, N_MSA_TOKENS, RESIDUES
from evoformer.features.profile import one_hot


def mask_positions(
    shape: tuple[int, ...], fraction: float, generator: np.random.Generator
) -> Bool[np.ndarray, "N_clust N_res"]:
    """Each cell, the query's too, is chosen with probability `fraction`, independently of the others."""
    return generator.random(shape) < fraction


def replacement_probabilities(
    letters: Integer[np.ndarray, "*cells"],
    profile: Float[np.ndarray, "*cells 22"],
    *,
    profile_prob: float = 0.1,
    same_prob: float = 0.1,
    uniform_prob: float = 0.1,
) -> Float32[np.ndarray, "*cells 23"]:
    """How likely each letter is to take the place of a chosen cell; the mask token has what the three shares leave.

    Args:
        letters: what the cells hold.
        profile: the shares of the 22 letters in the columns of the cells.
        profile_prob: the share drawn from the profile.
        same_prob: the share left as it is.
        uniform_prob: the share drawn from the twenty amino acids alike.
    """
    uniform = np.zeros(N_MSA_LETTERS, np.float32)
    uniform[: len(RESIDUES)] = 1 / len(RESIDUES)
    probabilities = np.empty((*letters.shape, N_MSA_TOKENS), np.float32)
    probabilities[..., :MASK] = (
        uniform_prob * uniform + profile_prob * profile + same_prob * one_hot(letters, N_MSA_LETTERS)
    )
    probabilities[..., MASK] = max(1 - profile_prob - same_prob - uniform_prob, 0.0)  # not -1e-17
    return probabilities


def draw_letters(
    probabilities: Float[np.ndarray, "*cells 23"], generator: np.random.Generator
) -> Int64[np.ndarray, "*cells"]:
    """One letter a cell, drawn from its probabilities."""
    threshold = generator.random(probabilities.shape[:-1]) * probabilities.sum(axis=-1, dtype=np.float64)
    letters = np.zeros(threshold.shape, np.int64)
    cumulative = np.zeros(threshold.shape)
    for letter in range(MASK):  # many times faster than np.cumsum along so short an axis
        cumulative += probabilities[..., letter]
        letters += cumulative <= threshold
    return letters
