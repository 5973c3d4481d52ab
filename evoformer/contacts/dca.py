"""Mean-field direct coupling analysis: contacts from an alignment without any learning, the baseline to beat."""

import numpy as np
from jaxtyping import Float64, UInt8

from evoformer.constants import UNKNOWN
from evoformer.features.identity import check_letters, sequence_weights

N_AMINO_ACIDS = UNKNOWN  # the twenty residues are numbers 0 to 19
N_STATES = N_AMINO_ACIDS + 1  # and the gap, number 20 in this file


def mean_field_dca(
    msa: UInt8[np.ndarray, "N_seq N_res"],
    *,
    identity: float = 0.8,
    max_gaps: float = 0.5,
    pseudocount: float = 0.5,
) -> Float64[np.ndarray, "N_res N_res"]:
    """Coupling strength of every pair of columns; the higher, the more likely a contact.

    Morcos et al., PNAS 2011 (doi 10.1073/pnas.1111471108), with the score of Ekeberg et al., Phys. Rev. E 2013
    (doi 10.1103/PhysRevE.87.012707): the couplings are minus the inverse of the covariance over 20 states, the gap
    being the reference; in the zero-sum gauge their Frobenius norm over the amino acids is taken, and the average
    product correction removed. An X counts as a gap. Row 0, the query, is always used.

    Args:
        msa: letters as numbers of `MSA_ALPHABET`.
        identity: share of equal columns, a gap being a letter too, from which two rows count as neighbours.
        max_gaps: rows with a larger share of gaps are left out.
        pseudocount: weight of the uniform distribution in the frequencies, above 0.

    Returns:
        Scores in no unit, symmetric, with a zero diagonal. One row holds no covariation: it gives scores without order.

    Raises:
        ValueError: `msa` is no matrix of such numbers, or `pseudocount` is not in (0, 1].
    """
    check_letters(msa)
    if not 0 < pseudocount <= 1:
        raise ValueError(f"pseudocount is {pseudocount}, it must be above 0 and at most 1")
    states = np.where(msa < N_AMINO_ACIDS, msa, N_AMINO_ACIDS).astype(np.uint8)
    enough = (states == N_AMINO_ACIDS).mean(axis=1) <= max_gaps
    enough[0] = True
    states = states[enough]

    couplings = _couplings(states, sequence_weights(states, identity=identity), pseudocount)
    # To the zero-sum gauge: means over all 21 states are taken away, of which the gap's couplings are zero.
    zero_sum = (
        couplings
        - couplings.sum(axis=1, keepdims=True) / N_STATES
        - couplings.sum(axis=3, keepdims=True) / N_STATES
        + couplings.sum(axis=(1, 3), keepdims=True) / N_STATES**2
    )
    norm = np.sqrt(np.einsum("iajb,iajb->ij", zero_sum, zero_sum))
    return _average_product_corrected((norm + norm.T) / 2)


def _couplings(
    states: UInt8[np.ndarray, "N_seq N_res"], weights: Float64[np.ndarray, " N_seq"], pseudocount: float
) -> Float64[np.ndarray, "N_res 20 N_res 20"]:
    """Minus the inverse covariance of the twenty residues' indicators, right for pairs of different columns only.

    With a pseudocount p the frequencies are those of a mixture: of the uniform distribution, with weight p, and of the
    rows. Its covariance is p times the uniform one, the same block for each column, plus the spread of the mixture's
    means, V^T V with a row of V for each sequence. A shallow alignment is inverted by that smaller side (Woodbury).
    """
    N_seq, N_res = states.shape
    one_hot = (states[:, :, None] == np.arange(N_AMINO_ACIDS)).reshape(N_seq, -1).astype(np.float64)
    means = np.concatenate([one_hot, np.full((1, one_hot.shape[1]), 1 / N_STATES)])
    shares = np.append((1 - pseudocount) * weights / weights.sum(), pseudocount)
    spread = np.sqrt(shares)[:, None] * (means - shares @ means)  # V
    if len(spread) < spread.shape[1]:
        # The inverse of a block p * (I/21 - J/21^2), I the identity and J all ones, is 21/p * (I + J).
        of_column = spread.reshape(-1, N_res, N_AMINO_ACIDS).sum(axis=2)
        by_block = N_STATES / pseudocount * (spread + of_column.repeat(N_AMINO_ACIDS, axis=1))
        inner = np.linalg.cholesky(np.eye(len(spread)) + by_block @ spread.T)
        half = np.linalg.solve(inner, by_block)
        couplings = half.T @ half
    else:
        block = np.eye(N_AMINO_ACIDS) / N_STATES - 1 / N_STATES**2
        covariance = spread.T @ spread + pseudocount * np.kron(np.eye(N_res), block)
        couplings = -np.linalg.inv(covariance)
    return couplings.reshape(N_res, N_AMINO_ACIDS, N_res, N_AMINO_ACIDS)


def _average_product_corrected(norm: Float64[np.ndarray, "N_res N_res"]) -> Float64[np.ndarray, "N_res N_res"]:
    """Dunn et al., Bioinformatics 2008 (doi 10.1093/bioinformatics/btm604); means are over the other columns."""
    N_res = len(norm)
    np.fill_diagonal(norm, 0)
    total = norm.sum()
    if total == 0:  # a single column
        return norm
    of_column = norm.sum(axis=0)
    corrected = norm - np.outer(of_column, of_column) * (N_res / ((N_res - 1) * total))
    np.fill_diagonal(corrected, 0)
    return corrected
