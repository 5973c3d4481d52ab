"""From features to the first MSA and pair representation."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from evoformer.constants import N_MSA_LETTERS, N_MSA_TOKENS
from evoformer.layers.linear import Linear
from evoformer.shapes import MSA, Pair

N_AATYPE = N_MSA_LETTERS - 1  # the letters of a query: no gap


def relative_position(residue_index: Int[Tensor, "*batch N_res"], k: int = 32) -> Int[Tensor, "*batch N_res N_res"]:
    """i - j, cut off at -k and k, plus k: the bins of Algorithm 4, numbers 0 to 2 k, exact at any residue number."""
    offset = residue_index[..., :, None] - residue_index[..., None, :]
    return offset.clamp(-k, k) + k


class InputEmbedder(nn.Module):
    """AlphaFold's embedding of the MSA features, the target features and the relative positions.

    AlphaFold 2 supplement, Algorithms 3 and 4.

    Args:
        c_m: channels of the MSA.
        c_z: channels of the pair representation.
        tf_dim: channels of `target_feat`.
        msa_dim: channels of `msa_feat`.
        relpos_k: the largest offset along the chain that has a bin of its own.
    """

    features: ClassVar[tuple[str, ...]] = ("target_feat", "residue_index", "msa_feat")

    def __init__(self, c_m: int, c_z: int, tf_dim: int = 22, msa_dim: int = 49, relpos_k: int = 32) -> None:
        super().__init__()
        self.relpos_k = relpos_k
        self.linear_tf_z_i = Linear(tf_dim, c_z)
        self.linear_tf_z_j = Linear(tf_dim, c_z)
        self.linear_tf_m = Linear(tf_dim, c_m)
        self.linear_msa_m = Linear(msa_dim, c_m)
        self.linear_relpos = Linear(2 * relpos_k + 1, c_z)

    def forward(
        self,
        target_feat: Float[Tensor, "*batch N_res tf_dim"],
        residue_index: Int[Tensor, "*batch N_res"],
        msa_feat: Float[Tensor, "*batch N_seq N_res msa_dim"],
    ) -> tuple[MSA, Pair]:
        """Embed.

        Shapes:
            target_feat: [*, N_res, tf_dim]
            residue_index: [*, N_res]
            msa_feat: [*, N_seq, N_res, msa_dim]
            returns: m [*, N_seq, N_res, c_m] and z [*, N_res, N_res, c_z]
        """
        i, j = self.linear_tf_z_i(target_feat), self.linear_tf_z_j(target_feat)
        relpos = relative_position(residue_index, self.relpos_k)
        z = i[..., :, None, :] + j[..., None, :, :]
        z = z + self.linear_relpos(_one_hot(relpos, 2 * self.relpos_k + 1, z))
        m = self.linear_msa_m(msa_feat) + self.linear_tf_m(target_feat)[..., None, :, :]
        return m, z


class ProfileEmbedder(nn.Module):
    """A small embedding for small trunks: letters and gaps to the MSA; the query and the alignment's profile to both.

    Not AlphaFold's. The profile goes to the pair representation because a centred outer product mean cannot carry it.

    Args:
        c_m: channels of the MSA.
        c_z: channels of the pair representation.
        relpos_k: the largest offset along the chain that has a bin of its own.
    """

    features: ClassVar[tuple[str, ...]] = ("aatype", "residue_index", "msa", "msa_gap_fraction", "hhblits_profile")

    def __init__(self, c_m: int, c_z: int, relpos_k: int = 32) -> None:
        super().__init__()
        self.relpos_k = relpos_k
        self.linear_msa = Linear(N_MSA_TOKENS, c_m)
        self.linear_gap = Linear(1, c_m)
        self.linear_m = Linear(N_AATYPE + N_MSA_LETTERS, c_m)
        self.linear_z_i = Linear(N_AATYPE + N_MSA_LETTERS, c_z)
        self.linear_z_j = Linear(N_AATYPE + N_MSA_LETTERS, c_z)
        self.linear_relpos = Linear(2 * relpos_k + 1, c_z)

    def forward(
        self,
        aatype: Int[Tensor, "*batch N_res"],
        residue_index: Int[Tensor, "*batch N_res"],
        msa: Int[Tensor, "*batch N_seq N_res"],
        msa_gap_fraction: Float[Tensor, "*batch N_seq"],
        hhblits_profile: Float[Tensor, "*batch N_res 22"],
    ) -> tuple[MSA, Pair]:
        """Embed.

        Shapes:
            aatype: [*, N_res], the query's letters, 0 to 20
            residue_index: [*, N_res]
            msa: [*, N_seq, N_res], letters 0 to 22
            msa_gap_fraction: [*, N_seq], the share of gaps in each row
            hhblits_profile: [*, N_res, 22], the frequencies of the letters in each column
            returns: m [*, N_seq, N_res, c_m] and z [*, N_res, N_res, c_z]
        """
        column = torch.cat([_one_hot(aatype, N_AATYPE, hhblits_profile), hhblits_profile], dim=-1)
        gap = self.linear_gap(msa_gap_fraction[..., None])
        m = self.linear_msa(_one_hot(msa, N_MSA_TOKENS, hhblits_profile))
        m = m + gap[..., :, None, :] + self.linear_m(column)[..., None, :, :]
        relpos = relative_position(residue_index, self.relpos_k)
        z = self.linear_z_i(column)[..., :, None, :] + self.linear_z_j(column)[..., None, :, :]
        z = z + self.linear_relpos(_one_hot(relpos, 2 * self.relpos_k + 1, z))
        return m, z


def _one_hot(numbers: Tensor, n: int, like: Tensor) -> Tensor:
    """One-hot vectors in the dtype of another tensor."""
    return F.one_hot(numbers.long(), n).to(like.dtype)
