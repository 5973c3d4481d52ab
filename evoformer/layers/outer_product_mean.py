"""From the MSA to the pair representation: the mean over sequences of the outer products of two columns."""

from torch import nn

from evoformer import ops
from evoformer.execution import Execution
from evoformer.kernels.parts import OuterProductParts
from evoformer.layers.linear import Linear
from evoformer.shapes import MSA, MSAMask, Pair, check_mask


class OuterProductMean(nn.Module):
    """The mean over sequences of the outer product of two columns of the MSA, projected to the pair representation.

    AlphaFold 2 supplement, Algorithm 10. Returns the update; the block adds it.

    With `centered=True` each column's mean over sequences is subtracted after the LayerNorm, so that what is projected
    is the covariance of the two columns and not, for the most part, the product of their means. This is an addition of
    ours, with the same parameters; AlphaFold does not centre.

    Args:
        c_m: channels of the MSA.
        c_z: channels of the pair representation.
        c: channels of the two columns.
        eps: added to the number of sequences that the two columns share, before the division.
        centered: whether columns are centred.
    """

    execution = Execution()

    def __init__(self, c_m: int, c_z: int, c: int = 32, eps: float = 1e-3, centered: bool = False) -> None:
        super().__init__()
        self.eps = eps
        self.centered = centered
        self.layer_norm = nn.LayerNorm(c_m)
        self.linear_1 = Linear(c_m, c)
        self.linear_2 = Linear(c_m, c)
        self.linear_out = Linear(c * c, c_z, init="final")

    def forward(self, m: MSA, msa_mask: MSAMask | None = None) -> Pair:
        """The update of z.

        Shapes:
            m: [*, N_seq, N_res, c_m]
            msa_mask: [*, N_seq, N_res], 1 where the residue exists
            returns: [*, N_res, N_res, c_z]

        Raises:
            ValueError: the mask does not fit.
        """
        check_mask(msa_mask, m, "msa_mask", "m")
        parts = OuterProductParts(
            norm=self.layer_norm,
            a=self.linear_1,
            b=self.linear_2,
            out=self.linear_out,
            eps=self.eps,
            centered=self.centered,
        )
        return ops.outer_product_mean(m, parts, msa_mask, self.execution)
