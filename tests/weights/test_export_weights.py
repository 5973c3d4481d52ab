"""Writing weights: what is read back is the same bit by bit, under the names that the other library has."""

from typing import get_args

import numpy as np
import pytest
import safetensors.torch
import torch
from golden_models import (
    GOLDEN,
    LAYER_FILES,
    LAYERS,
    PARAMS,
    ROOT,
    arrays,
    assert_same_weights,
    extra_block,
    extra_stack,
    main_block,
    main_stack,
    redrawn,
    trunk,
)

from evoformer import EvoformerBlock, InputEmbedder, MSAColumnGlobalAttention, export_weights, load_weights
from evoformer.config import ModelConfig, TrunkConfig
from evoformer.model import ContactModel
from evoformer.weights.names import Layout, WeightsError

MODULES = {
    "trunk": trunk,
    "main stack": main_stack,
    "extra stack": extra_stack,
    "main block": main_block,
    "extra block": extra_block,
    "embedder": lambda: InputEmbedder(16, 12),
    "embedder without has_break": lambda: InputEmbedder(16, 12, tf_dim=21),
    "msa_att_col global": lambda: MSAColumnGlobalAttention(8, 2, 4),
    **LAYERS,
}


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("suffix", [".bin", ".safetensors"])
def test_a_round_trip_changes_no_bit(tmp_path, name, layout, suffix):
    module, back = redrawn(MODULES[name]()), redrawn(MODULES[name]())
    export_weights(module, tmp_path / f"weights{suffix}", layout=layout)
    report = load_weights(back, tmp_path / f"weights{suffix}")
    assert report.unused == [] or layout == "decoded"
    assert_same_weights(back, module)


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("name", ["attention__gated_bias", "global_attention__gated"])
def test_an_attention_by_itself_goes_round(tmp_path, name, layout):
    make = LAYER_FILES[name][0]
    module, back = redrawn(make()), redrawn(make())
    export_weights(module, tmp_path / "weights", layout=layout)
    load_weights(back, tmp_path / "weights")
    assert_same_weights(back, module)


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_go_round(tmp_path, layout, dtype):
    module, back = redrawn(main_stack().to(dtype)), main_stack().to(dtype)
    export_weights(module, tmp_path / "weights", layout=layout)
    load_weights(back, tmp_path / "weights")
    assert_same_weights(back, module)


def test_alphafolds_own_arrays_come_back(tmp_path):
    params = arrays(PARAMS)
    module = trunk()
    used = set(params) - set(load_weights(module, PARAMS).unused)
    export_weights(module, tmp_path / "params.npz", layout="alphafold")
    written = arrays(tmp_path / "params.npz")
    assert written.keys() == used
    for name in used:
        np.testing.assert_array_equal(written[name], params[name], err_msg=name)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("evoformer_iteration_monomer__base", "alphafold"),
        ("evoformer_iteration_multimer_v3__base", "alphafold_fused"),
        ("extra_msa_stack_multimer_v3__base", "alphafold_fused"),
    ],
)
def test_a_block_is_written_under_the_names_it_has_in_alphafold_by_itself(tmp_path, name, layout):
    sizes = {"c_opm": 6, "c_tri_mul": 10, "N_head_msa": 4, "c_tri_att": 8, "c_msa_att": 8}
    kind = "global" if name.startswith("extra") else "full"
    block = EvoformerBlock(16, 12, column_attention=kind, **sizes)
    load_weights(block, GOLDEN / f"{name}.npz")
    export_weights(block, tmp_path / "block.npz", layout=layout)
    golden = {k.removeprefix("param/"): v for k, v in arrays(GOLDEN / f"{name}.npz").items() if k.startswith("param/")}
    written = arrays(tmp_path / "block.npz")
    assert written.keys() == golden.keys()
    for key, array in golden.items():
        np.testing.assert_array_equal(written[key], array, err_msg=key)


def test_fused_and_separate_projections_hold_the_same_weights(tmp_path):
    module, back = main_stack(), main_stack()
    export_weights(module, tmp_path / "fused.npz", layout="alphafold_fused")
    report = load_weights(back, tmp_path / "fused.npz")
    assert report.layout == "alphafold_fused"
    assert_same_weights(back, module)
    scope = f"{ROOT}evoformer_iteration/triangle_multiplication_incoming"
    written = arrays(tmp_path / "fused.npz")
    assert written[f"{scope}/projection//weights"].shape == (2, 12, 20)
    # Left comes first, and is our b.
    left = written[f"{scope}/projection//weights"][1, :, :10]
    np.testing.assert_array_equal(left.T, module.blocks[1].pair_stack.tri_mul_in.linear_b_p.weight.detach().numpy())


def test_openfold_is_a_plain_dict_under_its_current_names(tmp_path):
    export_weights(trunk(), tmp_path / "trunk.pt", layout="openfold")
    state = torch.load(tmp_path / "trunk.pt", weights_only=True)
    assert "evoformer.blocks.1.msa_att_col._msa_att.mha.linear_q.weight" in state
    assert "evoformer.blocks.1.msa_att_row.mha.linear_q.weight" in state
    assert "input_embedder.linear_tf_m.weight" in state
    export_weights(extra_block(), tmp_path / "block.pt", layout="openfold")
    state = torch.load(tmp_path / "block.pt", weights_only=True)
    assert state.keys() == extra_block().state_dict().keys()


def test_alphafold_decodeds_embedder_has_no_has_break(tmp_path):
    module = trunk()
    export_weights(module, tmp_path / "trunk.pt", layout="decoded")
    state = torch.load(tmp_path / "trunk.pt", weights_only=True)
    assert state["input_embedder.linear_tf_m.weight"].shape == (16, 21)
    assert torch.equal(state["input_embedder.linear_tf_m.weight"], module.input_embedder.linear_tf_m.weight[:, 1:])
    assert "evoformer.blocks.0.core.tri_mul_out.linear_g.bias" in state
    assert "evoformer.blocks.0.msa_att_col.mha.linear_q.weight" in state


def test_a_written_view_does_not_bring_its_whole_storage(tmp_path):
    """Columns cut out of a matrix are written alone."""
    export_weights(InputEmbedder(300, 200), tmp_path / "embedder.pt", layout="decoded")
    n_numbers = sum(parameter.numel() for parameter in InputEmbedder(300, 200).parameters())
    assert (tmp_path / "embedder.pt").stat().st_size < 4 * n_numbers + 20_000


def test_safetensors_hold_the_names_of_the_layout(tmp_path):
    export_weights(main_stack(), tmp_path / "stack.safetensors", layout="openfold")
    state = safetensors.torch.load_file(tmp_path / "stack.safetensors")
    assert "evoformer.blocks.0.msa_att_col._msa_att.layer_norm_m.bias" in state


def test_what_a_layout_cannot_name_is_listed(tmp_path):
    model = ContactModel(ModelConfig(trunk=TrunkConfig(embedder="profile", N_block=1, c_m=6, c_z=4, N_head_msa=2)))
    with pytest.raises(WeightsError, match=r"ContactModel cannot be written as alphafold: .*no name for .*linear_gap"):
        export_weights(model, tmp_path / "model.npz", layout="alphafold")
    assert not list(tmp_path.iterdir())
    export_weights(model, tmp_path / "model.pt", layout="openfold")
    back = redrawn(
        ContactModel(ModelConfig(trunk=TrunkConfig(embedder="profile", N_block=1, c_m=6, c_z=4, N_head_msa=2)))
    )
    load_weights(back, tmp_path / "model.pt")
    assert_same_weights(back, model)


def test_a_block_without_triangle_attention_goes_round(tmp_path):
    sizes = {"N_head_tri": 0, "N_head_msa": 2, "c_opm": 3, "c_tri_mul": 5}
    module, back = redrawn(EvoformerBlock(6, 4, **sizes)), redrawn(EvoformerBlock(6, 4, **sizes))
    for layout in get_args(Layout):
        export_weights(module, tmp_path / "weights", layout=layout)
        load_weights(redrawn(back), tmp_path / "weights")
        assert_same_weights(back, module)


def test_an_unknown_layout_is_named(tmp_path, without_shape_checks):
    with pytest.raises(
        WeightsError, match="layout is 'jax', expected one of alphafold, alphafold_fused, openfold, decoded"
    ):
        export_weights(main_block(), tmp_path / "weights", layout="jax")
