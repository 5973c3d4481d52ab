"""The pair half of an Evoformer block."""

from torch import nn

from evoformer.execution import Execution, added
from evoformer.layers.dropout import DropoutColumnwise, DropoutRowwise
from evoformer.layers.transition import PairTransition
from evoformer.layers.triangle_attention import TriangleAttention
from evoformer.layers.triangle_multiplication import TriangleMultiplication
from evoformer.shapes import Pair, PairMask


class PairStack(nn.Module):
    """Triangle multiplications, triangle attentions and the pair transition.

    AlphaFold 2 supplement, Algorithm 6, lines 6 to 10.

    Args:
        c_z: channels of the pair representation.
        c_tri_mul: hidden channels of the triangle multiplications.
        c_tri_att: channels of a head of the triangle attentions.
        N_head_tri: heads of the triangle attentions; 0 leaves triangle attention out, for small trunks.
        n_pair_transition: factor of the hidden channels of the transition.
        p_pair: dropout probability.
    """

    execution = Execution()

    def __init__(
        self,
        c_z: int,
        *,
        c_tri_mul: int = 128,
        c_tri_att: int = 32,
        N_head_tri: int = 4,
        n_pair_transition: int = 4,
        p_pair: float = 0.25,
    ) -> None:
        super().__init__()
        self.tri_mul_out = TriangleMultiplication(c_z, "outgoing", c_tri_mul)
        self.tri_mul_in = TriangleMultiplication(c_z, "incoming", c_tri_mul)
        self.has_attention = N_head_tri > 0
        if self.has_attention:
            self.tri_att_start = TriangleAttention(c_z, "starting_node", c_tri_att, N_head_tri)
            self.tri_att_end = TriangleAttention(c_z, "ending_node", c_tri_att, N_head_tri)
        self.pair_transition = PairTransition(c_z, n_pair_transition)
        self.dropout_row = DropoutRowwise(p_pair)
        self.dropout_col = DropoutColumnwise(p_pair)

    def forward(self, z: Pair, pair_mask: PairMask | None = None) -> Pair:
        """The new z.

        Shapes:
            z: [*, N_res, N_res, c_z]
            pair_mask: [*, N_res, N_res], 1 where both residues exist
            returns: [*, N_res, N_res, c_z]
        """
        z = z + self.dropout_row(self.tri_mul_out(z, pair_mask))  # a new z, which may be changed in place
        z = added(z, self.dropout_row(self.tri_mul_in(z, pair_mask)), self.execution)
        if self.has_attention:
            z = added(z, self.dropout_row(self.tri_att_start(z, pair_mask)), self.execution)
            z = added(z, self.dropout_col(self.tri_att_end(z, pair_mask)), self.execution)
        return added(z, self.pair_transition(z), self.execution)
