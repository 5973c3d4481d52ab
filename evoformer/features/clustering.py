"""Extra sequences given to their nearest cluster centre, and what each cluster looks like on average.

AlphaFold 2 supplement, 1.2.7. Equal letters are looked up, a tile of extra rows at a time: no array of the size
N_extra x N_res x letters is ever made.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float32, Int, Integer, Shaped

from evoformer.constants import GAP, MASK, N_MSA_TOKENS
from evoformer.features.profile import one_hot

TILE = 256  # extra rows at a time: their counts against 512 centres stay in the processor's cache
HIDDEN = MASK + 1  # stands in for a masked cell: equal to nothing

Centres = Integer[np.ndarray, "N_clust N_res"]
Extras = Integer[np.ndarray, "N_extra N_res"]


def assign_to_clusters(
    msa: Centres,
    extra_msa: Extras,
    *,
    msa_mask: Shaped[np.ndarray, "N_clust N_res"] | None = None,
    extra_msa_mask: Shaped[np.ndarray, "N_extra N_res"] | None = None,
    gap_agreement_weight: float = 0.0,
) -> Int[np.ndarray, "N_extra"]:
    """The centre that shares most letters with each extra row; the first of equals.

    A column counts where both rows are real and hold the same residue or X. The mask token never counts, a shared gap
    counts `gap_agreement_weight`.

    Args:
        msa: the cluster centres, after the masked-MSA corruption.
        extra_msa: the other rows.
        msa_mask: 1 where a centre's cell is real; None is everywhere.
        extra_msa_mask: the same for the other rows.
        gap_agreement_weight: what a gap in both rows is worth, 0 in AlphaFold.

    Returns:
        a row number of `msa` for each extra row.
    """
    assignment = np.zeros(len(extra_msa), np.int64)
    for rows, agreement in agreement_with_centres(msa, extra_msa, msa_mask, extra_msa_mask, gap_agreement_weight):
        assignment[rows] = agreement.argmax(axis=1)
    return assignment


def agreement_with_centres(
    msa: Centres,
    extra_msa: Extras,
    msa_mask: Shaped[np.ndarray, "N_clust N_res"] | None,
    extra_msa_mask: Shaped[np.ndarray, "N_extra N_res"] | None,
    gap_agreement_weight: float,
) -> Iterator[tuple[slice, Shaped[np.ndarray, "N_tile N_clust"]]]:
    """Tiles of extra rows, and how many columns each shares with each centre; see `assign_to_clusters`."""
    N_clust, N_res = msa.shape
    centres = hide(msa, msa_mask).T
    # equal[column, letter, centre] is 1 where that centre has that letter there; gap, MASK and HIDDEN rows stay 0.
    equal = np.zeros((N_res, HIDDEN + 1, N_clust), np.min_scalar_type(N_res))
    for letter in range(GAP):
        equal[:, letter] = centres == letter
    centre_gaps = (centres == GAP).astype(np.float32)

    for start in range(0, len(extra_msa), TILE):
        rows = slice(start, start + TILE)
        tile = hide(extra_msa[rows], None if extra_msa_mask is None else extra_msa_mask[rows])
        agreement = np.zeros((len(tile), N_clust), equal.dtype)
        for letters, equal_here in zip(tile.T, equal, strict=True):
            agreement += equal_here[letters]
        if gap_agreement_weight:
            shared_gaps = (tile == GAP).astype(np.float32) @ centre_gaps
            yield rows, agreement + gap_agreement_weight * shared_gaps
        else:
            yield rows, agreement


def summarize_clusters(
    msa: Centres,
    deletions: Shaped[np.ndarray, "N_clust N_res"],
    extra_msa: Extras,
    extra_deletions: Shaped[np.ndarray, "N_extra N_res"],
    assignment: Int[np.ndarray, "N_extra"],
    *,
    msa_mask: Shaped[np.ndarray, "N_clust N_res"] | None = None,
    extra_msa_mask: Shaped[np.ndarray, "N_extra N_res"] | None = None,
) -> tuple[Float32[np.ndarray, "N_clust N_res 23"], Float32[np.ndarray, "N_clust N_res"]]:
    """The letters' shares and the mean number of deletions in each column of each cluster, the centre included.

    As in AlphaFold, masked extra cells count nothing, the centre's own letter is not masked, and 1e-6 is added to the
    number of cells, so that the profile of a lone centre reads 0.999999.

    Args:
        msa: the cluster centres, after the masked-MSA corruption.
        deletions: the number of deletions before each of their residues.
        extra_msa: the other rows.
        extra_deletions: their deletions.
        assignment: the centre of each extra row, as `assign_to_clusters` returns it.
        msa_mask: 1 where a centre's cell is real; None is everywhere.
        extra_msa_mask: the same for the other rows.

    Returns:
        cluster_profile: shares of the 23 letters.
        cluster_deletion_mean: deletions.
    """
    N_clust, N_res = msa.shape
    profile = one_hot(msa, N_MSA_TOKENS)
    deletion_sum = deletions.astype(np.float32)
    cells = np.float32(1e-6) + (np.ones(msa.shape, np.float32) if msa_mask is None else msa_mask.astype(np.float32))
    if len(extra_msa):
        others = np.zeros((N_clust, N_res, HIDDEN + 1), np.float32)
        for start in range(0, len(extra_msa), TILE):
            rows = slice(start, start + TILE)
            tile = hide(extra_msa[rows], None if extra_msa_mask is None else extra_msa_mask[rows])
            first_cell = assignment[rows, None] * N_res + np.arange(N_res)
            np.add.at(others.reshape(-1), first_cell * (HIDDEN + 1) + tile, np.float32(1))
            inserted = np.nonzero(np.where(tile == HIDDEN, 0, extra_deletions[rows]))
            counts = extra_deletions[rows][inserted].astype(np.float32)
            np.add.at(deletion_sum.reshape(-1), first_cell[inserted], counts)
        profile += others[..., :N_MSA_TOKENS]
        cells += others[..., :N_MSA_TOKENS].sum(axis=-1)
    profile /= cells[..., None]
    return profile, deletion_sum / cells


def hide(
    msa: Integer[np.ndarray, "N_seq N_res"], mask: Shaped[np.ndarray, "N_seq N_res"] | None
) -> Integer[np.ndarray, "N_seq N_res"]:
    """The letters, HIDDEN where the mask is 0."""
    return msa if mask is None else np.where(mask != 0, msa, np.uint8(HIDDEN))
