"""Loading weights: DeepMind's outputs come out, each part is found, and what does not fit is named in one error."""

import re
from dataclasses import asdict

import numpy as np
import pytest
import torch
from golden_models import (
    BASE,
    GOLDEN,
    LAYER_FILES,
    LAYERS,
    PARAMS,
    ROOT,
    arrays,
    assert_equal_to_golden,
    assert_same_weights,
    extra_block,
    extra_stack,
    main_block,
    main_stack,
    redrawn,
    tensors,
    trunk,
)
from torch import nn

import evoformer
from evoformer import (
    EvoformerBlock,
    EvoformerStack,
    ExtraMSABlock,
    ExtraMSAStack,
    InputEmbedder,
    LoadReport,
    MSARowAttentionWithPairBias,
    MSATransition,
    MultiHeadAttention,
    TriangleMultiplication,
    load_weights,
)
from evoformer.config import ModelConfig, TrunkConfig
from evoformer.errors import InputError
from evoformer.model import ContactModel
from evoformer.weights import decoded, openfold
from evoformer.weights.alphafold import to_ours
from evoformer.weights.names import WeightsError


@pytest.fixture
def params():
    return arrays(PARAMS)


@pytest.fixture
def ours(params):
    """The checkpoint by our names, as tensors."""
    return {name: torch.from_numpy(np.array(item.array)) for name, item in to_ours(params).items()}


# What DeepMind's modules compute


@pytest.mark.parametrize("case", ["base", "dead"])
def test_the_stacks_of_a_checkpoint_compute_what_deepminds_do(case):
    inputs, golden = tensors(f"model_monomer__{case}", "input"), tensors(f"model_monomer__{case}", "output")
    pair_mask = inputs["seq_mask"][:, None] * inputs["seq_mask"]
    extra, main = extra_stack(), main_stack()
    load_weights(extra, PARAMS)
    load_weights(main, PARAMS)
    z = extra(golden["embedded_extra_msa"], golden["embedded_pair"], inputs["extra_msa_mask"], pair_mask)
    assert_equal_to_golden(z, golden["extra_stack_pair"])
    m, z, s = main(golden["embedded_msa"], golden["extra_stack_pair"], inputs["msa_mask"], pair_mask)
    assert_equal_to_golden(m, golden["msa"])
    assert_equal_to_golden(z, golden["pair"])
    assert_equal_to_golden(s, golden["single"])


@pytest.mark.parametrize("stack", ["evoformer_iteration", "extra_msa_stack"])
@pytest.mark.parametrize("model", ["monomer", "multimer_v2", "multimer_v3"])
def test_a_block_of_any_model_computes_what_deepminds_does(stack, model):
    inputs, golden = tensors(f"{stack}_{model}__base", "input"), tensors(f"{stack}_{model}__base", "output")
    kind = EvoformerBlock if stack == "evoformer_iteration" else ExtraMSABlock
    block = redrawn(kind(16, 12, opm_first=model != "monomer", **BASE))
    report = load_weights(block, GOLDEN / f"{stack}_{model}__base.npz")
    assert report.layout == ("alphafold_fused" if model == "multimer_v3" else "alphafold")
    assert len(report.loaded) == 93
    m, z = block(inputs["msa"], inputs["pair"], inputs["msa_mask"], inputs["pair_mask"])
    assert_equal_to_golden(m, golden["msa"])
    assert_equal_to_golden(z, golden["pair"])


@pytest.mark.parametrize("name", LAYER_FILES)
def test_a_layer_computes_what_deepminds_does(name):
    layer, names = LAYER_FILES[name][0](), LAYER_FILES[name][1]
    inputs, golden = tensors(name, "input"), tensors(name, "output")
    load_weights(redrawn(layer), GOLDEN / f"{name}.npz")
    if isinstance(layer, MultiHeadAttention):
        # DeepMind's attention takes its mask as [B, 1, 1, K] and [B, N, 1].
        inputs[names[-1]] = inputs[names[-1]].flatten(1)
    assert_equal_to_golden(layer(*(inputs.get(each) for each in names)), golden["act"])


# Finding a module's tensors


def test_a_trunk_takes_its_embedder_and_its_stack(ours):
    module = trunk()
    report = load_weights(module, PARAMS)
    assert report.loaded == list(module.state_dict())
    assert report.missing == report.mismatched == report.all_zero == report.notes == []
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, ours[name]), name


def test_what_the_trunk_has_no_place_for_is_unused(params):
    unused = set(load_weights(trunk(), PARAMS).unused)
    kept = ("evoformer_iteration/", "preprocess_", "left_single", "right_single", "pair_activiations", "single_act")
    assert unused == {name for name in params if not any(name.startswith(ROOT + part) for part in kept)}
    assert len(unused) == 267 - 93 - 12


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(("make", "stack"), [(main_block, "evoformer"), (extra_block, "extra_msa_stack")])
def test_a_block_is_found_by_its_number_in_the_stack_of_its_kind(ours, make, stack, number):
    block = make()
    report = load_weights(block, PARAMS, block=number)
    assert report.place == f"{stack}.blocks.{number}, of 2 blocks"
    for name, tensor in block.state_dict().items():
        assert torch.equal(tensor, ours[f"{stack}.blocks.{number}.{name}"]), name


@pytest.mark.parametrize("place", LAYERS)
def test_a_layer_is_found_by_its_place_in_the_block(ours, place):
    layer = redrawn(LAYERS[place]())
    load_weights(layer, PARAMS, block=1)
    for name, tensor in layer.state_dict().items():
        assert torch.equal(tensor, ours[f"evoformer.blocks.1.{place}.{name}"]), name


def test_a_layer_of_the_extra_stack_is_found_by_its_shape_or_by_its_stack(ours):
    row = redrawn(MSARowAttentionWithPairBias(8, 12, 2, 4))
    report = load_weights(row, PARAMS, block=1)
    assert report.place.startswith("extra_msa_stack.blocks.1.msa_att_row")
    multiplication = redrawn(TriangleMultiplication(12, "incoming", 10))
    for block, stack in (("extra_msa_stack.blocks.0", "extra_msa_stack"), (0, "evoformer")):
        load_weights(multiplication, PARAMS, block=block)
        expected = ours[f"{stack}.blocks.0.pair_stack.tri_mul_in.linear_g.weight"]
        assert torch.equal(multiplication.linear_g.weight, expected)


def test_the_embedder_is_found():
    report = load_weights(redrawn(InputEmbedder(16, 12)), PARAMS)
    assert report.place == "input_embedder"
    assert len(report.loaded) == 10


def test_a_block_must_be_named_where_there_are_several():
    with pytest.raises(
        WeightsError, match="evoformer has blocks 0 to 1 for EvoformerBlock: say which one, such as block=0"
    ):
        load_weights(main_block(), PARAMS)
    with pytest.raises(WeightsError, match="has blocks 0 to 1 for MSATransition"):
        load_weights(MSATransition(16), PARAMS)


@pytest.mark.parametrize("block", [2, -1, "evoformer.blocks.2", "template.blocks.0"])
def test_a_block_that_is_not_there_is_named_with_those_that_are(block):
    with pytest.raises(WeightsError, match=rf"no block {block!r} for EvoformerBlock; .*evoformer\.blocks\.0 to 1"):
        load_weights(main_block(), PARAMS, block=block)


def test_a_block_is_no_question_for_a_stack():
    with pytest.raises(WeightsError, match="block=1 is for one block or one layer, and EvoformerStack is neither"):
        load_weights(main_stack(), PARAMS, block=1)


def test_an_attention_that_may_be_that_of_several_layers_is_refused():
    attention = MultiHeadAttention(16, 4, 4, attn_dim=-2, gated=True)
    with pytest.raises(WeightsError, match=r"may be any of msa_att_row\.mha, msa_att_col\.mha: load the layer"):
        load_weights(attention, PARAMS, block=0)


def test_a_source_without_the_module_says_what_it_holds():
    source = GOLDEN / "msa_transition__base.npz"
    with pytest.raises(WeightsError, match=r"no weights for OuterProductMean; it holds msa_transition\.layer_norm, "):
        load_weights(LAYERS["outer_product_mean"](), source)


# Layouts, prefixes, and dicts


def older_openfold(name):
    name = name.replace("pair_stack.", "core.")
    for part in ("msa_transition.", "outer_product_mean."):
        name = name.replace(part, f"core.{part}")
    return name


SOURCES = {
    "ours": lambda named: named,
    "openfold": openfold.from_ours,
    "decoded": decoded.from_ours,
    "older openfold": lambda named: {older_openfold(k): v for k, v in openfold.from_ours(named).items()},
    "training": lambda named: {"state_dict": {f"model.{k}": v for k, v in openfold.from_ours(named).items()}},
    "DDP": lambda named: {f"module.model.{k}": v for k, v in openfold.from_ours(named).items()},
    "averaged": lambda named: {
        "state_dict": {f"model.{k}": torch.zeros_like(v) for k, v in named.items()},
        "ema": {"params": openfold.from_ours(named), "decay": 0.999},
    },
    "compiled": lambda named: {f"_orig_mod.{k}": v for k, v in named.items()},
}


@pytest.mark.parametrize("layout", SOURCES)
@pytest.mark.parametrize("make", [trunk, main_stack, extra_stack])
def test_every_spelling_of_the_names_loads(ours, tmp_path, layout, make):
    source, expected, loaded = SOURCES[layout](ours), make(), make()
    torch.save(source, tmp_path / "weights.pt")
    load_weights(expected, PARAMS)
    load_weights(loaded, tmp_path / "weights.pt")
    assert_same_weights(loaded, expected)
    load_weights(redrawn(loaded), source)
    assert_same_weights(loaded, expected)


def test_layouts_are_recognised(ours):
    layouts = {name: load_weights(main_stack(), make(ours)).layout for name, make in SOURCES.items()}
    assert layouts.pop("decoded") == "decoded"
    assert set(layouts.values()) == {"openfold"}


@pytest.mark.parametrize("layout", ["ours", "openfold", "decoded", "older openfold", "DDP"])
def test_names_may_begin_at_the_stack_at_the_block_or_at_the_layer(ours, layout):
    named, expected = SOURCES[layout](ours), main_block()
    load_weights(expected, PARAMS, block=1)

    def inside(mark):
        return {name.partition(mark)[2]: value for name, value in named.items() if mark in name}

    names = [name for name in named if "extra" not in name]
    named = {name: named[name] for name in names}
    stack = main_stack()
    load_weights(stack, inside("evoformer."))
    assert_same_weights(stack.blocks[1], expected)
    for source, block in ((inside("evoformer."), 1), (inside("evoformer.blocks.1."), None)):
        loaded = main_block()
        load_weights(loaded, source, block=block)
        assert_same_weights(loaded, expected)
    layer = redrawn(LAYERS["msa_att_col"]())
    load_weights(layer, inside("evoformer.blocks.1.msa_att_col."))
    assert_same_weights(layer, expected.msa_att_col)


@pytest.mark.parametrize("prefix", ["", "evoformer/", "alphafold/alphafold_iteration/evoformer/", "param/"])
def test_alphafolds_names_may_begin_anywhere_above_the_stack(params, prefix):
    source = {prefix + name.removeprefix(ROOT): array for name, array in params.items() if name.startswith(ROOT)}
    loaded, expected = main_stack(), main_stack()
    load_weights(loaded, source)
    load_weights(expected, PARAMS)
    assert_same_weights(loaded, expected)


def test_haikus_dict_of_dicts_loads(params):
    nested = {}
    for name, array in params.items():
        scope, _, part = name.partition("//")
        nested.setdefault(scope, {})[part] = array
    loaded, expected = main_stack(), main_stack()
    load_weights(loaded, nested)
    load_weights(expected, PARAMS)
    assert_same_weights(loaded, expected)


def test_openfolds_fused_projections_are_split(ours):
    fused = {}
    for name, value in ours.items():
        if ".linear_a_" in name and "tri_mul" in name:
            fused[name.replace("linear_a_", "linear_ab_")] = torch.cat([value, ours[name.replace("_a_", "_b_")]])
        elif not (".linear_b_" in name and "tri_mul" in name):
            fused[name] = value
    loaded, expected = main_stack(), main_stack()
    with pytest.warns(UserWarning, match="opm_first=True"):
        report = load_weights(loaded, fused)
    load_weights(expected, PARAMS)
    assert_same_weights(loaded, expected)
    assert not any("linear_ab" in name and name.startswith("evoformer") for name in report.unused)


def test_a_training_checkpoint_of_ours_loads_into_the_model_and_into_its_stack(tmp_path):
    sizes = {"N_block": 2, "c_m": 6, "c_z": 10, "c_s": 4, "c_opm": 5, "N_head_msa": 2, "N_head_tri": 2}
    config = ModelConfig(trunk=TrunkConfig(embedder="profile", column_attention="global", **sizes))
    model = redrawn(ContactModel(config))
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save({"state_dict": state, "hyper_parameters": {"model": asdict(config)}, "epoch": 3}, tmp_path / "last.ckpt")
    another = redrawn(ContactModel(config))
    assert load_weights(another, tmp_path / "last.ckpt").unused == []
    assert_same_weights(another, model)
    sizes = {name: size for name, size in sizes.items() if name not in ("N_block", "c_m", "c_z", "c_s")}
    stack = redrawn(EvoformerStack(6, 10, 2, 4, column_attention="global", **sizes))
    load_weights(stack, tmp_path / "last.ckpt")
    assert_same_weights(stack, model.trunk.evoformer)
    for part in ("masked_msa", "distogram"):
        head = redrawn(type(getattr(model, part))(*((6,) if part == "masked_msa" else (10,))))
        load_weights(head, tmp_path / "last.ckpt")
        assert_same_weights(head, getattr(model, part))


def test_values_take_the_modules_dtype():
    module = main_block().bfloat16()
    load_weights(module, PARAMS, block=0)
    exact = main_block()
    load_weights(exact, PARAMS, block=0)
    assert_same_weights(module, exact.bfloat16())


# What does not fit


def before_and_after(module, source, message, **options):
    """Loading fails with a message, and leaves the module as it was."""
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with pytest.raises(WeightsError, match=message) as caught:
        load_weights(module, source, **options)
    assert isinstance(caught.value, InputError)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    return str(caught.value)


def test_missing_and_unknown_names_are_listed_in_one_error(ours):
    del ours["evoformer.blocks.1.msa_att_row.linear_z.weight"], ours["evoformer.linear.bias"]
    ours["evoformer.liner.bias"] = torch.zeros(20)
    text = before_and_after(main_stack(), ours, "EvoformerStack cannot be loaded from evoformer, which has 2 blocks")
    assert "2 missing in the source: blocks.1.msa_att_row.linear_z.weight, linear.bias\n" in text
    assert "evoformer.liner.bias" in text.splitlines()[-1]


def test_a_stack_of_more_blocks_than_the_source_lacks_the_last():
    stack = redrawn(EvoformerStack(16, 12, 3, 20, c_msa_att=4, c_opm=6, c_tri_mul=10, c_tri_att=3, N_head_msa=4))
    text = before_and_after(stack, PARAMS, "93 missing in the source")
    assert "blocks.2.msa_att_row.layer_norm_m.weight" in text
    assert "blocks.1." not in text


def test_a_differing_shape_is_named_with_both_shapes():
    stack = redrawn(ExtraMSAStack(8, 12, 2, c_msa_att=2, c_opm=6, c_tri_mul=11, c_tri_att=3, N_head_msa=4))
    source_name = "extra_msa_stack/triangle_multiplication_outgoing/left_projection//weights"
    text = before_and_after(stack, PARAMS, "another shape")
    assert re.search(
        rf"blocks\.0\.pair_stack\.tri_mul_out\.linear_a_p\.weight \(.*{source_name}\) "
        rf"is \(10, 12\) in the source, \(11, 12\) in the module",
        text,
    )


def test_other_numbers_of_heads_are_a_difference_though_all_shapes_agree():
    layer = redrawn(evoformer.MSAColumnAttention(16, 8, 2))
    before_and_after(layer, PARAMS, r"mha\.linear_q\.weight .* has 4 heads in the source, 2 in the module", block=0)


def test_not_strict_loads_what_fits_and_leaves_the_rest(ours):
    del ours["evoformer.blocks.0.msa_transition.linear_1.bias"]
    ours["evoformer.linear.bias"] = torch.zeros(3)
    stack = main_stack()
    kept = stack.linear.bias.clone(), stack.blocks[0].msa_transition.linear_1.bias.clone()
    report = load_weights(stack, ours, strict=False)
    assert report.missing == ["blocks.0.msa_transition.linear_1.bias"]
    assert report.mismatched == ["linear.bias (evoformer.linear.bias) is (3,) in the source, (20,) in the module"]
    assert torch.equal(stack.linear.bias, kept[0])
    assert torch.equal(stack.blocks[0].msa_transition.linear_1.bias, kept[1])
    assert torch.equal(stack.linear.weight, ours["evoformer.linear.weight"])
    assert len(report.loaded) == 2 * 93 + 2 - 2


def test_a_tensor_given_twice_is_refused(ours):
    ours["model.evoformer.linear.bias"] = torch.zeros(20)
    before_and_after(main_stack(), ours, r"evoformer\.linear\.bias and model\.evoformer\.linear\.bias are both")


def test_a_truncated_file_leaves_the_module_alone(tmp_path):
    (tmp_path / "half.npz").write_bytes(PARAMS.read_bytes()[:100_000])
    before_and_after(main_stack(), tmp_path / "half.npz", r"half\.npz cannot be read as weights: incomplete")


@pytest.mark.parametrize("name", ["params.pt", "params_model_1_multimer_v3.npz", "weights.safetensors"])
def test_the_name_of_the_file_plays_no_part(tmp_path, name):
    (tmp_path / name).write_bytes(PARAMS.read_bytes())
    loaded, expected = main_stack(), main_stack()
    assert load_weights(loaded, tmp_path / name).layout == "alphafold"
    load_weights(expected, PARAMS)
    assert_same_weights(loaded, expected)


# The report


def test_tensors_of_nothing_but_zeros_are_reported(params):
    name = f"{ROOT}evoformer_iteration/msa_transition/transition2//weights"
    params[name] = params[name].copy()
    params[name][1] = 0.0
    report = load_weights(main_stack(), params)
    assert report.all_zero == ["blocks.1.msa_transition.linear_2.weight"]


def test_a_multimer_model_warns_of_the_order_of_the_block(params):
    encoding = f"{ROOT}~_relative_encoding/position_activations"
    for part in ("weights", "bias"):
        del params[f"{ROOT}pair_activiations//{part}"]
    params[f"{encoding}//weights"], params[f"{encoding}//bias"] = np.zeros((73, 12)), np.zeros(12)
    with pytest.warns(
        UserWarning, match="multimer model, which takes the outer product mean first: use opm_first=True"
    ):
        report = load_weights(main_block(), params, block=0)
    assert len(report.notes) == 1
    right = EvoformerBlock(16, 12, opm_first=True, c_msa_att=4, c_opm=6, c_tri_mul=10, N_head_msa=4, c_tri_att=3)
    assert load_weights(right, params, block=0).notes == []


def test_the_report_prints_as_a_few_lines():
    report = load_weights(main_block(), PARAMS, block=1)
    assert isinstance(report, LoadReport)
    lines = str(report).splitlines()
    assert lines[0] == "EvoformerBlock from evoformer.blocks.1, of 2 blocks (layout alphafold)"
    assert lines[1:3] == ["  93 loaded", "  0 missing"]
    assert re.fullmatch(r"  174 unused in the source: .*, and 166 more", lines[4])
    assert len(lines) == 6


def test_any_module_with_our_names_loads(ours):
    model = nn.ModuleDict({"extra_msa_stack": extra_stack(), "evoformer": main_stack()})
    load_weights(model, PARAMS)
    assert torch.equal(model["evoformer"].linear.bias, ours["evoformer.linear.bias"])
    assert len(load_weights(model, PARAMS).loaded) == 4 * 93 + 2
