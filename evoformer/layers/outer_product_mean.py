"""From the MSA to the pair representation: the mean over sequences of the outer products of two columns."""

from einops import rearrange
from torch import nn
from torch.nn import functional as F

from evoformer import ops
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
        if msa_mask is None:
            msa_mask = m.new_ones(m.shape[:-1])
        check_mask(msa_mask, m, "msa_mask", "m")
        m = self.layer_norm(m)
        mask = msa_mask[..., None].to(m.dtype)
        if self.centered:
            m = m - ops.masked_mean(m, mask, axis=-3)
        a = self.linear_1(m) * mask
        b = self.linear_2(m) * mask
        outer = rearrange(ops.outer_product_sum(a, b), "... i j c d -> ... i j (c d)")

        norm = self.eps + ops.outer_product_sum(mask, mask)[..., 0]
        # DISCREPANCY: the supplement takes the mean, then projects; DeepMind's code projects the sum, bias included,
        # and divides the result, so we divide the bias too. The sum is divided first, so that it fits float16.
        z = F.linear((outer / norm).to(a.dtype), self.linear_out.weight)
        return (z + self.linear_out.bias / norm).to(a.dtype)
