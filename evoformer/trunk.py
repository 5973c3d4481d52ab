"""The trunk: an embedder and a stack of Evoformer blocks, from features to m, z and s."""

from collections.abc import Mapping

from torch import Tensor, nn

from evoformer.blocks.evoformer import EvoformerStack
from evoformer.layers.embedders import InputEmbedder, ProfileEmbedder
from evoformer.shapes import MSA, Pair, Single


class Trunk(nn.Module):
    """From the features of `MSAFeaturizer` to the three representations.

    Args:
        embedder: makes the first m and z; its `features` name what it reads.
        evoformer: the stack of blocks.
    """

    def __init__(self, embedder: InputEmbedder | ProfileEmbedder, evoformer: EvoformerStack) -> None:
        super().__init__()
        self.input_embedder = embedder
        self.evoformer = evoformer

    def forward(self, features: Mapping[str, Tensor]) -> tuple[MSA, Pair, Single]:
        """Run the trunk.

        Shapes:
            features: the embedder's, and seq_mask [*, N_res] and msa_mask [*, N_seq, N_res]
            returns: m [*, N_seq, N_res, c_m], z [*, N_res, N_res, c_z], s [*, N_res, c_s]

        Raises:
            ValueError: a feature is missing.
        """
        wanted = (*self.input_embedder.features, "seq_mask", "msa_mask")
        missing = [name for name in wanted if name not in features]
        if missing:
            raise ValueError(f"features lack {', '.join(missing)}; they hold {', '.join(sorted(features))}")
        m, z = self.input_embedder(*(features[name] for name in self.input_embedder.features))
        seq_mask = features["seq_mask"]
        pair_mask = seq_mask[..., :, None] * seq_mask[..., None, :]
        return self.evoformer(m, z, features["msa_mask"], pair_mask)
