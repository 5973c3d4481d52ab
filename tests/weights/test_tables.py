"""The tables of names: each row as OpenFold's importer and DeepMind's code have it, and each with its inverse."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from evoformer.weights import alphafold, decoded, openfold
from evoformer.weights.names import WeightsError

# One row a tensor: AlphaFold's, OpenFold's and alphafold-decoded's name, and how the first becomes the others.
with (Path(__file__).parents[1] / "name_map.tsv").open() as _file:
    ROWS = list(csv.DictReader(_file, delimiter="\t"))
SIZES = {
    "c_m": 14, "c_z": 12, "c_e": 10, "c_s": 9, "H_m": 2, "c_h": 3, "c_he": 5, "H_z": 4, "c_tri": 2, "c_opm": 6,
    "c_mul": 8, "n": 4, "tf_dim": 22, "msa_dim": 49, "f_e": 25, "relpos_k": 32, "n_bin_prev": 15, "n_msa_cls": 23,
    "n_dist": 64, "n_pae": 64, "c_rel": 73, "L": 3, "L_e": 2,
}  # fmt: skip


def npz_array(row, k):
    shape = tuple(int(eval(size, {}, SIZES)) for size in row["npz_shape"].strip("()").split(",") if size.strip())
    return np.random.default_rng(k).normal(size=shape).astype(np.float32)


def transformed(array, row):
    """What the map's note says, for one block."""
    transform = row["notes"].split(";")[0].removeprefix("transform=").split()[0]
    if transform == "linear_T":
        array = array.T
    elif transform == "mha_in":
        array = array.reshape(array.shape[0], -1).T
    elif transform in ("mha_out", "opm_out"):
        array = array.reshape(-1, array.shape[2]).T
    elif transform == "flatten":
        array = array.reshape(-1)
    else:
        assert transform == "copy"
    if "swap the two c_mul halves" in row["notes"]:
        half = array.shape[0] // 2
        array = np.concatenate([array[half:], array[:half]])
    return array


def whole_model(*, fused, multimer=False):
    """AlphaFold's arrays, and OpenFold's tensors that the map makes of them, by its names."""
    theirs, expected = {}, {}
    plain = ("layer_norm_input", "_projection//", "_gate//", "center_layer_norm")
    for k, row in enumerate(ROWS):
        name, is_multiplication = row["alphafold_npz_name"], "triangle_multiplication" in row["alphafold_npz_name"]
        if "MULTIMER V3" in row["notes"] and not fused:
            continue
        is_plain = is_multiplication and any(word in name for word in plain) and "output_projection" not in name
        is_other_relpos = "linear_relpos" in row["openfold_name"] and ("MULTIMER ONLY" in row["notes"]) != multimer
        if (fused and is_plain) or is_other_relpos:
            continue
        theirs[name] = array = npz_array(row, k)
        blocks = array if row["npz_shape"].startswith(("(L,", "(L_e,")) else [array]
        for i, block in enumerate(blocks):
            expected[row["openfold_name"].replace("{i}", str(i))] = transformed(block, row)
    return theirs, expected


@pytest.mark.parametrize("fused", [False, True], ids=["monomer", "multimer_v3"])
def test_alphafolds_and_openfolds_arrays_of_a_whole_model_become_the_same_tensors(fused):
    theirs, openfolds = whole_model(fused=fused)
    ours, through_openfold = alphafold.to_ours(theirs), openfold.to_ours(openfolds)
    assert ours.keys() == through_openfold.keys()
    assert len(ours) == 3 * 93 + 2 * 93 + 36
    for name, item in ours.items():
        np.testing.assert_array_equal(item.array, through_openfold[name].array, err_msg=name)


def test_multimers_relative_positions_are_the_embedders():
    theirs, openfolds = whole_model(fused=False, multimer=True)
    name = "input_embedder.linear_relpos.weight"
    assert theirs["alphafold/alphafold_iteration/evoformer/~_relative_encoding/position_activations//bias"].shape == (
        12,
    )
    np.testing.assert_array_equal(alphafold.to_ours(theirs)[name].array, openfolds[name])


@pytest.mark.parametrize("fused", [False, True], ids=["monomer", "multimer_v3"])
def test_alphafolds_arrays_come_back_from_ours(fused):
    theirs, _ = whole_model(fused=fused)
    ours = {name: item.array for name, item in alphafold.to_ours(theirs).items()}
    back = alphafold.from_ours(ours, alphafold.heads_in(ours), fused=fused)
    assert back.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(back[name], array, err_msg=name)


def test_alphafold_decodeds_names_come_back_from_ours():
    expected = {row["alphafold_decoded_name"].replace("{i}", "0") for row in ROWS if row["alphafold_decoded_name"]}
    theirs = {name: np.full((1, 1), k) for k, name in enumerate(expected)}
    ours = {name: item.array for name, item in decoded.to_ours(theirs).items()}
    assert ours.keys() == {
        openfold.our_name(row["openfold_name"].replace("{i}", "0")) for row in ROWS if row["alphafold_decoded_name"]
    }
    assert decoded.from_ours(ours).keys() == expected


def test_openfolds_names_come_back_from_ours():
    theirs = {
        row["openfold_name"].replace("{i}", "1"): np.zeros(2) for row in ROWS if "MULTIMER V3" not in row["notes"]
    }
    ours = {name: item.array for name, item in openfold.to_ours(theirs).items()}
    assert openfold.from_ours(ours).keys() == theirs.keys()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("module.model.evoformer.linear.bias", "evoformer.linear.bias"),
        ("model.trunk.evoformer.linear.bias", "evoformer.linear.bias"),
        ("evoformer.blocks.0.core.msa_transition.linear_1.bias", "evoformer.blocks.0.msa_transition.linear_1.bias"),
        ("core.outer_product_mean.linear_out.bias", "outer_product_mean.linear_out.bias"),
        ("core.tri_att_start.linear.weight", "pair_stack.tri_att_start.linear.weight"),
        ("blocks.0.msa_att_col._msa_att.mha.linear_q.weight", "blocks.0.msa_att_col.mha.linear_q.weight"),
        ("_msa_att.layer_norm_m.bias", "layer_norm_m.bias"),
        ("model.masked_msa.linear.bias", "aux_heads.masked_msa.linear.bias"),
        ("structure_module.ipa.linear_q.weight", "structure_module.ipa.linear_q.weight"),
    ],
)  # fmt: skip
def test_prefixes_and_older_names(theirs, ours):
    assert openfold.our_name(theirs) == ours


def test_stacked_arrays_are_views_of_the_source():
    theirs, _ = whole_model(fused=True)
    name = "alphafold/alphafold_iteration/evoformer/evoformer_iteration/msa_transition/transition1//weights"
    item = alphafold.to_ours(theirs)["evoformer.blocks.2.msa_transition.linear_1.weight"]
    assert np.shares_memory(item.array, theirs[name])
    assert item.source == name


def test_names_that_alphafold_lacks_are_listed_in_one_error():
    named = {"layer_norm_z.weight": np.zeros(3), "evoformer.linear.bias": np.zeros(3), "odd": np.zeros(3)}
    with pytest.raises(WeightsError, match=r"AlphaFold has no name for layer_norm_z\.weight, odd$"):
        alphafold.from_ours(named, {}, fused=False)


def test_tensors_that_a_stack_lacks_are_listed_in_one_error():
    names = [f"extra_msa_stack.blocks.{i}.msa_transition.linear_1.bias" for i in range(4)]
    with pytest.raises(WeightsError, match=r"missing for AlphaFold's layout: .*blocks\.0\..*, .*blocks\.2\.[^,]*$"):
        alphafold.from_ours({names[1]: np.zeros(3), names[3]: np.zeros(3)}, {}, fused=False)


def test_half_of_a_fused_projection_is_missing():
    named = {"pair_stack.tri_mul_in.linear_a_p.bias": torch.zeros(3)}
    with pytest.raises(WeightsError, match=r"missing .*: pair_stack\.tri_mul_in\.linear_b_p\.bias$"):
        alphafold.from_ours(named, {}, fused=True)


def test_a_wrong_number_of_axes_is_named():
    name = "evoformer_iteration/msa_transition/transition1//bias"
    with pytest.raises(
        WeightsError, match=r"transition1//bias has shape \(2, 3, 4\), expected 1 axes .*, 2 for a stack"
    ):
        alphafold.to_ours({name: np.zeros((2, 3, 4))})
    with pytest.raises(WeightsError, match=r"preprocess_1d//bias has shape \(2, 3\), expected 1 axes"):
        alphafold.to_ours({"evoformer/preprocess_1d//bias": np.zeros((2, 3))})


def test_an_odd_number_of_fused_channels_is_refused():
    with pytest.raises(WeightsError, match="projection//bias has 5 channels, which do not halve"):
        alphafold.to_ours({"triangle_multiplication_incoming/projection//bias": np.zeros(5)})
    with pytest.raises(WeightsError, match=r"linear_ab_g\.bias has 5 channels, which do not halve"):
        openfold.to_ours({"tri_mul_in.linear_ab_g.bias": np.zeros(5)})


def test_the_template_stack_is_not_taken_for_the_pair_stack():
    name = "alphafold/alphafold_iteration/evoformer/template_embedding/single_template_embedding/template_pair_stack"
    theirs = {f"{name}/__layer_stack_no_state/pair_transition/transition1//bias": np.zeros((2, 4))}
    assert alphafold.to_ours(theirs) == {}
