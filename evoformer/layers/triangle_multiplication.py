"""Triangle multiplicative update: an edge is updated from the two other edges of every triangle."""

from typing import Literal, get_args

from torch import nn

from evoformer import ops
from evoformer.execution import Execution
from evoformer.kernels.parts import TriangleParts
from evoformer.layers.linear import Linear
from evoformer.shapes import Pair, PairMask, check_mask, check_square

MultType = Literal["outgoing", "incoming"]


class TriangleMultiplication(nn.Module):
    """Triangle multiplicative update using outgoing or incoming edges.

    AlphaFold 2 supplement, Algorithms 11 and 12. Returns the update; the block adds it.

    Args:
        c_z: channels of the pair representation.
        mult_type: "outgoing" or "incoming" edges.
        c: hidden channels.

    Raises:
        ValueError: the type is neither of the two.
    """

    execution = Execution()

    def __init__(self, c_z: int, mult_type: MultType, c: int = 128) -> None:
        super().__init__()
        if mult_type not in get_args(MultType):
            raise ValueError(f"mult_type is {mult_type!r}, expected one of {', '.join(get_args(MultType))}")
        self.mult_type = mult_type
        self.layer_norm_in = nn.LayerNorm(c_z)
        self.linear_a_p = Linear(c_z, c)
        self.linear_a_g = Linear(c_z, c, init="gating")
        self.linear_b_p = Linear(c_z, c)
        self.linear_b_g = Linear(c_z, c, init="gating")
        self.layer_norm_out = nn.LayerNorm(c)
        self.linear_z = Linear(c, c_z, init="final")
        self.linear_g = Linear(c_z, c_z, init="gating")

    def forward(self, z: Pair, pair_mask: PairMask | None = None) -> Pair:
        """The update of z.

        Shapes:
            z: [*, N_res, N_res, c_z]
            pair_mask: [*, N_res, N_res], 1 where both residues exist
            returns: [*, N_res, N_res, c_z]

        Raises:
            ValueError: the mask does not fit.
        """
        check_square(z)
        check_mask(pair_mask, z, "pair_mask", "z")
        parts = TriangleParts(
            norm_in=self.layer_norm_in,
            a_p=self.linear_a_p,
            a_g=self.linear_a_g,
            b_p=self.linear_b_p,
            b_g=self.linear_b_g,
            norm_out=self.layer_norm_out,
            z=self.linear_z,
            g=self.linear_g,
            outgoing=self.mult_type == "outgoing",
        )
        return ops.triangle_multiplication(z, parts, pair_mask, self.execution)
