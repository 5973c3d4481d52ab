"""Triangle self-attention: an edge attends to the edges that start, or end, at the same residue."""

from typing import Literal, get_args

from torch import nn

from evoformer import ops
from evoformer.execution import Execution
from evoformer.layers.attention import MultiHeadAttention
from evoformer.layers.linear import Linear
from evoformer.shapes import Pair, PairMask, check_mask, check_square

NodeType = Literal["starting_node", "ending_node"]


class TriangleAttention(nn.Module):
    """Triangle self-attention around the starting or the ending node.

    AlphaFold 2 supplement, Algorithms 13 and 14. Around the ending node it is attention around the starting node of the
    transposed pair representation. Returns the update; the block adds it.

    Args:
        c_z: channels of the pair representation.
        node_type: "starting_node" or "ending_node".
        c: channels of a head.
        N_head: number of heads.

    Raises:
        ValueError: the type is neither of the two.
    """

    execution = Execution()

    def __init__(self, c_z: int, node_type: NodeType, c: int = 32, N_head: int = 4) -> None:
        super().__init__()
        if node_type not in get_args(NodeType):
            raise ValueError(f"node_type is {node_type!r}, expected one of {', '.join(get_args(NodeType))}")
        self.node_type = node_type
        self.layer_norm = nn.LayerNorm(c_z)
        self.linear = Linear(c_z, N_head, bias=False, init="normal")
        self.mha = MultiHeadAttention(c_z, c, N_head, attn_dim=-2, gated=True)

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
        bias = ops.pair_bias(z, self.layer_norm, self.linear, self.execution)
        if self.node_type == "ending_node":
            z, bias = z.transpose(-2, -3), bias.transpose(-1, -2)
            pair_mask = None if pair_mask is None else pair_mask.transpose(-1, -2)
        update = self.mha.attend(z, self.layer_norm, bias, pair_mask)
        return update.transpose(-2, -3) if self.node_type == "ending_node" else update
