"""The building blocks of AlphaFold-style trunks."""

from evoformer.blocks.evoformer import EvoformerBlock, EvoformerStack
from evoformer.blocks.extra_msa import ExtraMSABlock, ExtraMSAStack
from evoformer.blocks.pair import PairStack
from evoformer.layers.attention import MultiHeadAttention
from evoformer.layers.dropout import DropoutColumnwise, DropoutRowwise
from evoformer.layers.embedders import InputEmbedder, ProfileEmbedder
from evoformer.layers.msa_attention import MSAColumnAttention, MSAColumnGlobalAttention, MSARowAttentionWithPairBias
from evoformer.layers.outer_product_mean import OuterProductMean
from evoformer.layers.self_attention import MultiHeadSelfAttention, SelfAttentionClassifier
from evoformer.layers.transition import MSATransition, PairTransition
from evoformer.layers.triangle_attention import TriangleAttention
from evoformer.layers.triangle_multiplication import TriangleMultiplication

__all__ = [
    "DropoutColumnwise",
    "DropoutRowwise",
    "EvoformerBlock",
    "EvoformerStack",
    "ExtraMSABlock",
    "ExtraMSAStack",
    "InputEmbedder",
    "MSAColumnAttention",
    "MSAColumnGlobalAttention",
    "MSARowAttentionWithPairBias",
    "MSATransition",
    "MultiHeadAttention",
    "MultiHeadSelfAttention",
    "OuterProductMean",
    "PairStack",
    "PairTransition",
    "ProfileEmbedder",
    "SelfAttentionClassifier",
    "TriangleAttention",
    "TriangleMultiplication",
]
