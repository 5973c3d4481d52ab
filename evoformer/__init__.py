"""The building blocks of AlphaFold-style trunks: layers, blocks, stacks, and the features they read."""

from evoformer.blocks.evoformer import EvoformerBlock, EvoformerStack
from evoformer.blocks.extra_msa import ExtraMSABlock, ExtraMSAStack
from evoformer.blocks.pair import PairStack
from evoformer.config import TrunkConfig, build_trunk
from evoformer.contacts.dca import mean_field_dca
from evoformer.contacts.precision import contact_precision
from evoformer.execution import Execution, set_execution
from evoformer.features.alignment import Alignment, AlignmentError, AlignmentWarning
from evoformer.features.batch import collate
from evoformer.features.featurizer import MSAFeaturizer
from evoformer.features.reading import read_alignment
from evoformer.features.structure import Structure, StructureError, read_structure
from evoformer.kernels import KernelError, kernels_used
from evoformer.layers.attention import MultiHeadAttention
from evoformer.layers.dropout import DropoutColumnwise, DropoutRowwise
from evoformer.layers.embedders import InputEmbedder, ProfileEmbedder
from evoformer.layers.msa_attention import MSAColumnAttention, MSAColumnGlobalAttention, MSARowAttentionWithPairBias
from evoformer.layers.outer_product_mean import OuterProductMean
from evoformer.layers.self_attention import MultiHeadSelfAttention, SelfAttentionClassifier
from evoformer.layers.transition import MSATransition, PairTransition
from evoformer.layers.triangle_attention import TriangleAttention
from evoformer.layers.triangle_multiplication import TriangleMultiplication
from evoformer.memory import estimate_memory
from evoformer.trunk import Trunk
from evoformer.weights.load import export_weights, load_weights
from evoformer.weights.names import WeightsError
from evoformer.weights.report import LoadReport

__all__ = [
    "Alignment",
    "AlignmentError",
    "AlignmentWarning",
    "DropoutColumnwise",
    "DropoutRowwise",
    "EvoformerBlock",
    "EvoformerStack",
    "Execution",
    "ExtraMSABlock",
    "ExtraMSAStack",
    "InputEmbedder",
    "KernelError",
    "LoadReport",
    "MSAColumnAttention",
    "MSAColumnGlobalAttention",
    "MSAFeaturizer",
    "MSARowAttentionWithPairBias",
    "MSATransition",
    "MultiHeadAttention",
    "MultiHeadSelfAttention",
    "OuterProductMean",
    "PairStack",
    "PairTransition",
    "ProfileEmbedder",
    "SelfAttentionClassifier",
    "Structure",
    "StructureError",
    "TriangleAttention",
    "TriangleMultiplication",
    "Trunk",
    "TrunkConfig",
    "WeightsError",
    "build_trunk",
    "collate",
    "contact_precision",
    "estimate_memory",
    "export_weights",
    "kernels_used",
    "load_weights",
    "mean_field_dca",
    "read_alignment",
    "read_structure",
    "set_execution",
]
