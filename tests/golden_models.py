"""Modules of the sizes that the golden files have, and how to read those files."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from evoformer import (
    EvoformerBlock,
    EvoformerStack,
    ExtraMSABlock,
    ExtraMSAStack,
    MSAColumnAttention,
    MSAColumnGlobalAttention,
    MSARowAttentionWithPairBias,
    MSATransition,
    MultiHeadAttention,
    OuterProductMean,
    PairTransition,
    TriangleAttention,
    TriangleMultiplication,
    Trunk,
    TrunkConfig,
    build_trunk,
)

GOLDEN = Path(__file__).parent / "golden"
PARAMS = GOLDEN / "model_monomer__params.npz"
ROOT = "alphafold/alphafold_iteration/evoformer/"

# Of the stand-in for a checkpoint: 2 main blocks, 2 extra ones.
CHECKPOINT = {"c_opm": 6, "c_tri_mul": 10, "N_head_msa": 4, "N_head_tri": 4, "c_tri_att": 3}
# Of the module files with the suffix `base`.
BASE = {"c_opm": 6, "c_tri_mul": 10, "N_head_msa": 4, "N_head_tri": 4, "c_tri_att": 8, "c_msa_att": 8}


def main_stack() -> EvoformerStack:
    return redrawn(EvoformerStack(16, 12, 2, 20, c_msa_att=4, **CHECKPOINT))


def extra_stack() -> ExtraMSAStack:
    return redrawn(ExtraMSAStack(8, 12, 2, c_msa_att=2, **CHECKPOINT))


def main_block() -> EvoformerBlock:
    return redrawn(EvoformerBlock(16, 12, c_msa_att=4, **CHECKPOINT))


def extra_block() -> ExtraMSABlock:
    return redrawn(ExtraMSABlock(8, 12, c_msa_att=2, **CHECKPOINT))


def trunk() -> Trunk:
    return redrawn(build_trunk(TrunkConfig(c_m=16, c_z=12, c_s=20, N_block=2, c_msa_att=4, **CHECKPOINT)))


# The layers of a main block of the checkpoint.
LAYERS = {
    "msa_att_row": lambda: MSARowAttentionWithPairBias(16, 12, 4, 4),
    "msa_att_col": lambda: MSAColumnAttention(16, 4, 4),
    "msa_transition": lambda: MSATransition(16),
    "outer_product_mean": lambda: OuterProductMean(16, 12, 6),
    "pair_stack": lambda: main_block().pair_stack,
    "pair_stack.tri_mul_out": lambda: TriangleMultiplication(12, "outgoing", 10),
    "pair_stack.tri_mul_in": lambda: TriangleMultiplication(12, "incoming", 10),
    "pair_stack.tri_att_start": lambda: TriangleAttention(12, "starting_node", 3, 4),
    "pair_stack.tri_att_end": lambda: TriangleAttention(12, "ending_node", 3, 4),
    "pair_stack.pair_transition": lambda: PairTransition(12),
}

# The layer of each golden module file, and the names of its inputs.
LAYER_FILES = {
    "msa_row_attention_with_pair_bias__base": (
        lambda: MSARowAttentionWithPairBias(16, 12, 8, 4),
        ("msa_act", "pair_act", "msa_mask"),
    ),
    "msa_column_attention__base": (lambda: MSAColumnAttention(16, 8, 4), ("msa_act", "msa_mask")),
    "msa_column_global_attention__base": (lambda: MSAColumnGlobalAttention(16, 8, 4), ("msa_act", "msa_mask")),
    "msa_transition__base": (lambda: MSATransition(16), ("act",)),
    "pair_transition__base": (lambda: PairTransition(12), ("act",)),
    "outer_product_mean__base": (lambda: OuterProductMean(16, 12, 6), ("msa_act", "msa_mask")),
    "triangle_multiplication_outgoing__base": (
        lambda: TriangleMultiplication(12, "outgoing", 10),
        ("pair_act", "pair_mask"),
    ),
    "triangle_multiplication_incoming__base": (
        lambda: TriangleMultiplication(12, "incoming", 10),
        ("pair_act", "pair_mask"),
    ),
    "triangle_multiplication_outgoing_fused__base": (
        lambda: TriangleMultiplication(12, "outgoing", 10),
        ("pair_act", "pair_mask"),
    ),
    "triangle_multiplication_incoming_fused__base": (
        lambda: TriangleMultiplication(12, "incoming", 10),
        ("pair_act", "pair_mask"),
    ),
    "triangle_attention_starting_node__base": (
        lambda: TriangleAttention(12, "starting_node", 8, 4),
        ("pair_act", "pair_mask"),
    ),
    "triangle_attention_ending_node__base": (
        lambda: TriangleAttention(12, "ending_node", 8, 4),
        ("pair_act", "pair_mask"),
    ),
    "attention__gated_bias": (
        lambda: MultiHeadAttention(16, 8, 4, attn_dim=-2, gated=True),
        ("q_data", "nonbatched_bias", "mask"),
    ),
    "global_attention__gated": (
        lambda: MultiHeadAttention(16, 8, 4, attn_dim=-2, gated=True, is_global=True),
        ("q_data", None, "q_mask"),
    ),
}


def redrawn(module: nn.Module) -> nn.Module:
    """With weights that agree with nothing by accident."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.eval()


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def tensors(name: str, part: str) -> dict[str, torch.Tensor]:
    """The inputs or outputs of a golden file."""
    return {
        key.removeprefix(f"{part}/"): torch.from_numpy(array)
        for key, array in arrays(GOLDEN / f"{name}.npz").items()
        if key.startswith(f"{part}/") and array.ndim
    }


def assert_equal_to_golden(ours: torch.Tensor, golden: torch.Tensor) -> None:
    scale = max(1.0, float(golden.abs().max()))
    assert ours.shape == golden.shape
    assert float((ours.detach() - golden).abs().max()) <= 1e-5 * scale


def assert_same_weights(a: nn.Module, b: nn.Module) -> None:
    """Bit by bit."""
    others = b.state_dict()
    assert a.state_dict().keys() == others.keys()
    for name, tensor in a.state_dict().items():
        assert torch.equal(tensor, others[name]), name
