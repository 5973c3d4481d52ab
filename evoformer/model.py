"""A trunk with its heads: from features to contacts."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from evoformer.config import ModelConfig, build_trunk
from evoformer.constants import CONTACT_DISTANCE
from evoformer.heads import DistogramHead, MaskedMSAHead
from evoformer.shapes import MSA, Pair, Single


@dataclass(frozen=True)
class Output:
    """What `ContactModel` returns.

    Attributes:
        m: the MSA representation, [*, N_seq, N_res, c_m].
        z: the pair representation, [*, N_res, N_res, c_z].
        s: the single representation, [*, N_res, c_s].
        masked_msa_logits: [*, N_seq, N_res, 23].
        distogram_logits: [*, N_res, N_res, N_bin].
    """

    m: MSA
    z: Pair
    s: Single
    masked_msa_logits: Float[Tensor, "*batch N_seq N_res N_token"]
    distogram_logits: Float[Tensor, "*batch N_res N_res N_bin"]


class ContactModel(nn.Module):
    """A trunk, a masked-MSA head and a distogram head; contacts are the distogram's bins below 8 Angstrom.

    Args:
        config: sizes and options.
    """

    distance_edges: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.trunk = build_trunk(config.trunk)
        self.masked_msa = MaskedMSAHead(config.trunk.c_m)
        self.layer_norm_z = nn.LayerNorm(config.trunk.c_z)
        self.distogram = DistogramHead(config.trunk.c_z, len(config.distance_edges) + 1)
        self.register_buffer("distance_edges", torch.tensor(config.distance_edges), persistent=False)

    def forward(self, features: Mapping[str, Tensor]) -> Output:
        """Run the trunk and its heads on the features of `MSAFeaturizer`."""
        m, z, s = self.trunk(features)
        return Output(m, z, s, self.masked_msa(m), self.distogram(self.layer_norm_z(z)))

    def contact_probability(
        self, distogram_logits: Float[Tensor, "*batch N_res N_res N_bin"]
    ) -> Float[Tensor, "*batch N_res N_res"]:
        """The probability that two C-beta atoms are closer than 8 Angstrom, summed over the bins below it.

        Shapes:
            distogram_logits: [*, N_res, N_res, N_bin]
            returns: [*, N_res, N_res]
        """
        n_contact = int((self.distance_edges <= CONTACT_DISTANCE).sum())
        return distogram_logits.float().softmax(-1)[..., :n_contact].sum(-1)
