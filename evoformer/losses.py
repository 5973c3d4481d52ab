"""One function per loss."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


def masked_msa_loss(
    logits: Float[Tensor, "*batch N_seq N_res N_token"],
    true_msa: Int[Tensor, "*batch N_seq N_res"],
    bert_mask: Float[Tensor, "*batch N_seq N_res"],
) -> Float[Tensor, ""]:
    """Cross-entropy of the letters that the masked-MSA corruption has hidden, averaged over them.

    AlphaFold 2 supplement, equation 42.

    Shapes:
        logits: [*, N_seq, N_res, N_token]
        true_msa: [*, N_seq, N_res]
        bert_mask: [*, N_seq, N_res], 1 where the letter counts
        returns: a scalar, 0 where no letter counts
    """
    errors = F.cross_entropy(logits.float().movedim(-1, 1), true_msa.long(), reduction="none")
    return (errors * bert_mask).sum() / (bert_mask.sum() + 1e-8)


def distogram_loss(
    logits: Float[Tensor, "*batch N_res N_res N_bin"],
    distances: Float[Tensor, "*batch N_res N_res"],
    edges: Float[Tensor, " N_edge"],
    weights: Float[Tensor, "*batch N_res N_res"],
) -> Float[Tensor, ""]:
    """Cross-entropy of the distance bins, averaged over the pairs of residues with their weights.

    AlphaFold 2 supplement, equation 41, where every resolved pair weighs 1.

    Shapes:
        logits: [*, N_res, N_res, N_bin]
        distances: [*, N_res, N_res], Angstrom, NaN where a residue is not resolved: such pairs do not count
        edges: [N_bin - 1], Angstrom, ascending: the borders between the bins
        weights: [*, N_res, N_res], broadcastable, what a pair counts
        returns: a scalar, 0 where no pair counts
    """
    resolved = ~torch.isnan(distances)
    bins = torch.bucketize(distances.nan_to_num().contiguous(), edges, right=True)  # a bin holds its lower border
    errors = F.cross_entropy(logits.float().movedim(-1, 1), bins, reduction="none")
    weights = weights * resolved
    return (errors * weights).sum() / (weights.sum() + 1e-6)


def separation_weights(residue_index: Int[Tensor, "*batch N_res"]) -> Float[Tensor, "*batch N_res N_res"]:
    """What a pair counts by its distance along the chain: 1 from six residues on, 0.3 from two to five, else 0.

    Contacts are scored from six residues on; nearer pairs are easy, and only steady the training of a small trunk.

    Shapes:
        residue_index: [*, N_res]
        returns: [*, N_res, N_res]
    """
    separation = (residue_index[..., :, None] - residue_index[..., None, :]).abs()
    return (separation >= 6).float() + 0.3 * ((separation >= 2) & (separation < 6)).float()
