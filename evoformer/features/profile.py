"""One-hot letters and how often each letter occurs in a column."""

from typing import Any

import numpy as np
from jaxtyping import Float32, Integer
from numpy.typing import NDArray

from evoformer.constants import N_MSA_LETTERS

Letters = Integer[np.ndarray, "N_seq N_res"]


def one_hot(letters: NDArray[np.integer[Any]], N: int) -> NDArray[np.float32]:
    """Float32 one-hot of letters 0, ..., N - 1.

    Shapes:
        letters: [*]
        returns: [*, N]
    """
    hot = np.zeros((*letters.shape, N), np.float32)
    mark_letters(hot, letters)
    return hot


def mark_letters(features: NDArray[np.float32], letters: NDArray[np.integer[Any]]) -> None:
    """Write a one in place at `features[..., letter]`; `features` [*, N] is contiguous, `letters` is [*]."""
    cells = np.arange(letters.size, dtype=np.intp) * features.shape[-1] + letters.reshape(-1)
    features.reshape(-1)[cells] = 1.0


def letter_profile(msa: Letters) -> Float32[np.ndarray, "N_res 22"]:
    """The share of each of the 22 letters, X and gap included, in every column: AlphaFold's `hhblits_profile`."""
    N_seq, N_res = msa.shape
    cells = np.arange(N_res) * N_MSA_LETTERS + msa
    counts = np.bincount(cells.reshape(-1), minlength=N_res * N_MSA_LETTERS)
    return (counts.reshape(N_res, N_MSA_LETTERS) / N_seq).astype(np.float32)
