"""Heads: from the trunk's representations to what is predicted."""

from jaxtyping import Float
from torch import Tensor, nn

from evoformer.constants import N_MSA_TOKENS
from evoformer.layers.linear import Linear
from evoformer.shapes import MSA, Pair


class MaskedMSAHead(nn.Module):
    """The letters of the MSA, hidden ones included. AlphaFold 2 supplement, section 1.9.9.

    Args:
        c_m: channels of the MSA.
        N_token: letters told apart.
    """

    def __init__(self, c_m: int, N_token: int = N_MSA_TOKENS) -> None:
        super().__init__()
        self.linear = Linear(c_m, N_token, init="final")

    def forward(self, m: MSA) -> Float[Tensor, "*batch N_seq N_res N_token"]:
        """Logits of the letters: [*, N_seq, N_res, c_m] to [*, N_seq, N_res, N_token]."""
        return self.linear(m)


class DistogramHead(nn.Module):
    """The distances of all pairs of residues, in bins. AlphaFold 2 supplement, section 1.9.8.

    Args:
        c_z: channels of the pair representation.
        N_bin: number of distance bins.
    """

    def __init__(self, c_z: int, N_bin: int = 64) -> None:
        super().__init__()
        self.linear = Linear(c_z, N_bin, init="final")

    def forward(self, z: Pair) -> Float[Tensor, "*batch N_res N_res N_bin"]:
        """Symmetric logits of the bins: [*, N_res, N_res, c_z] to [*, N_res, N_res, N_bin].

        The bias counts twice, as in DeepMind's code.
        """
        half_logits = self.linear(z)
        return half_logits + half_logits.transpose(-2, -3)
