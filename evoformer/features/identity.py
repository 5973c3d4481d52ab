"""How alike the rows of an alignment are."""

import numpy as np
from jaxtyping import UInt8

from evoformer.constants import GAP


def pairwise_identity(msa: UInt8[np.ndarray, "N_seq N_res"]) -> float:
    """Mean over pairs of rows of the share of equal residues where neither has a gap; NaN without such a pair."""
    N_seq = len(msa)
    one_hot = (msa[:, :, None] == np.arange(GAP)).reshape(N_seq, -1).astype(np.float32)
    present = (msa != GAP).astype(np.float32)
    pair = np.triu_indices(N_seq, 1)
    equal, compared = (one_hot @ one_hot.T)[pair], (present @ present.T)[pair]
    shares = equal[compared > 0] / compared[compared > 0]
    return float(shares.mean()) if len(shares) else float("nan")
