"""The featurizer: AlphaFold's arithmetic, one seed that decides everything, and steps one can exchange."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from evoformer.constants import GAP, MASK, MSA_ALPHABET, UNKNOWN
from evoformer.features import steps
from evoformer.features.alignment import Alignment
from evoformer.features.clustering import assign_to_clusters
from evoformer.features.featurizer import MSAFeaturizer
from evoformer.features.reading import read_alignment
from evoformer.features.schema import FEATURES, Feature, FeatureError, axis_sizes

GOLDEN = Path(__file__).parents[1] / "golden"
FORTY_ROWS = Path(__file__).parents[1] / "cases" / "55_forty_rows.a3m"
BASIC = ">query\nMKTAYWQLNDEG\n>hit_a\nMKSAYWQL-DEG\n>hit_b\n-KTAYWghQLNDEGr\n"
CASES = ["alignment", "single_sequence", "plain", "bert", "no_extra", "gap_weight", "masked_extra", "deep_deletions"]
UNUSED = np.random.default_rng(0)


@pytest.fixture(scope="module")
def forty_rows():
    return read_alignment(FORTY_ROWS)


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def golden(case):
    with np.load(GOLDEN / f"features__{case}.npz") as arrays:
        inputs = {name.removeprefix("input/"): arrays[name] for name in arrays if name.startswith("input/")}
        outputs = {name.removeprefix("output/"): arrays[name] for name in arrays if name.startswith("output/")}
    return inputs, outputs


@pytest.mark.parametrize("case", CASES)
def test_with_sampling_and_masking_given_the_steps_compute_alphafolds_features(case):
    inputs, expected = golden(case)
    weight = float(inputs["gap_agreement_weight"])
    features = {name: inputs[name] for name in ("aatype", "msa", "deletion_matrix")}
    features = steps.add_profile(features, UNUSED)
    features = steps.split_rows(features, inputs["row_order"], int(inputs["num_clusters"]))
    if "bert_position" in inputs:
        features = steps.corrupt(features, inputs["bert_position"], inputs["bert_token"])
    if "extra_msa_mask" in inputs:
        features["extra_msa_mask"] = inputs["extra_msa_mask"]
    features = steps.cluster(features, UNUSED, gap_agreement_weight=weight)
    features = steps.add_model_features(features, UNUSED)
    features["target_feat"] = steps.target_features(inputs["aatype"], inputs["between_segment_residues"])
    features["extra_cluster_assignment"] = assign_to_clusters(
        features["msa"],
        features["extra_msa"],
        extra_msa_mask=features["extra_msa_mask"],
        gap_agreement_weight=weight,
    )
    for name, value in expected.items():
        if name == "bert_categorical_probs":  # see test_masking.py
            continue
        assert features[name].shape == value.shape, name
        if value.dtype.kind == "f":
            assert features[name].dtype == np.float32, name
            np.testing.assert_allclose(features[name], value, rtol=0, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(features[name], value, err_msg=name)


def test_every_feature_has_its_declared_axes_and_type(forty_rows):
    features = MSAFeaturizer(max_clusters=8, max_extra=16, crop_size=10)(forty_rows, seed=0)
    assert axis_sizes(features) == {"N_res": 10, "N_clust": 8, "N_extra": 16}
    assert features.keys() == FEATURES.keys() - {"distances", "letters"}
    for name, value in features.items():
        assert value.dtype == FEATURES[name].dtype, name
        assert value.is_contiguous(), name
    assert features["msa_feat"].shape == (8, 10, 49)
    assert features["extra_msa_feat"].shape == (16, 10, 25)
    assert features["target_feat"].shape == (10, 22)


def test_deletions_and_profile_of_a_small_alignment():
    features = MSAFeaturizer(masked_msa_fraction=0.0)(read_alignment(BASIC), seed=3)
    assert features["msa"].shape == (3, 12)
    row = int((features["true_msa"][:, 0] == GAP).nonzero())  # hit_b, wherever the seed has put it
    expected = torch.zeros(3, 12)
    expected[row, 6] = 2
    assert torch.equal(features["deletion_matrix"], expected)
    assert features["msa_feat"][row, 6, 23] == 1.0
    assert features["msa_feat"][row, 6, 24] == pytest.approx(2 / np.pi * np.arctan(2 / 3), abs=1e-6)
    column = features["hhblits_profile"][2]
    assert column[MSA_ALPHABET.index("T")] == pytest.approx(2 / 3)
    assert column[MSA_ALPHABET.index("S")] == pytest.approx(1 / 3)
    assert column.sum() == pytest.approx(1)
    assert features["msa_gap_fraction"][row] == pytest.approx(1 / 12)
    assert features["msa_gap_fraction"].dtype == torch.float32


def test_a_single_sequence_is_its_own_cluster_without_extra_rows():
    featurizer = MSAFeaturizer(masked_msa_fraction=0.0, deleted_blocks=5)
    features = featurizer(read_alignment(">query\nMKTAYWQLNDEG\n"), seed=0)
    assert features["msa"].shape == (1, 12)
    assert features["extra_msa"].shape == features["extra_msa_mask"].shape == (0, 12)
    assert features["extra_msa_feat"].shape == (0, 12, 25)
    expected = torch.nn.functional.one_hot(features["aatype"], 23).float()
    torch.testing.assert_close(features["cluster_profile"][0], expected, rtol=0, atol=2e-6)
    assert not any(value.isnan().any() for value in features.values())


def test_the_first_of_equal_rows_stays_with_its_own_deletions():
    duplicates = ">query\nMKTAYWQLNDEG\n>a\nMKSAYWQL-DEG\n>b\nMKSAYWaaQL-DEG\n>c\nMKTAYWQLNDEG\n>d\n------------\n"
    features = MSAFeaturizer()(read_alignment(duplicates), seed=0)
    assert features["true_msa"].shape == (2, 12)
    assert features["deletion_matrix"].sum() == 0
    featurizer = MSAFeaturizer(clean=False)
    del featurizer.steps["deduplicate"]
    kept = featurizer(read_alignment(duplicates), seed=0)
    assert kept["true_msa"].shape == (5, 12)
    assert kept["deletion_matrix"].sum() == 2


def test_rows_of_gaps_go_in_a_first_step_or_stay_as_in_alphafold():
    alignment = read_alignment(">query\nMKT\n>a\n---\n>b\nMRT\n")
    cleaned, alphafolds = MSAFeaturizer(), MSAFeaturizer(clean=False)
    assert next(iter(cleaned.steps)) == "clean"
    assert list(alphafolds.steps) == list(cleaned.steps)[1:]
    assert cleaned(alignment, 0)["hhblits_profile"][:, GAP].tolist() == [0, 0, 0]
    features = alphafolds(alignment, 0)
    assert (features["true_msa"] == GAP).all(-1).sum() == 1
    torch.testing.assert_close(features["hhblits_profile"][:, GAP], torch.full((3,), 1 / 3))


def test_rows_are_split_into_centres_and_extras_with_the_query_first(forty_rows):
    features = MSAFeaturizer(max_clusters=8, max_extra=16)(forty_rows, seed=0)
    assert features["msa"].shape == (8, 12)
    assert features["extra_msa"].shape == (16, 12)
    assert torch.equal(features["true_msa"][0], torch.from_numpy(forty_rows.msa[0]).long())
    rows = torch.cat([features["true_msa"], features["extra_msa"]]).tolist()
    assert len({tuple(row) for row in rows}) == 24  # no row serves twice
    assert {tuple(row) for row in rows} <= {tuple(row) for row in forty_rows.msa.tolist()}


def test_one_seed_gives_the_same_arrays_whatever_the_global_random_state(forty_rows):
    featurizer = MSAFeaturizer(max_clusters=8, max_extra=16, crop_size=9)
    first = featurizer(forty_rows, seed=0)
    np.random.seed(5)
    torch.manual_seed(5)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state()
    second = featurizer(forty_rows, seed=0)
    after = np.random.get_state()[1].tolist(), torch.get_rng_state()
    assert equal(first, second)
    assert before[0] == after[0]
    assert torch.equal(before[1], after[1])


def test_another_seed_gives_other_rows_masks_and_letters(forty_rows):
    featurizer = MSAFeaturizer(max_clusters=8, max_extra=16)
    first, second = featurizer(forty_rows, seed=0), featurizer(forty_rows, seed=1)
    for name in ("true_msa", "bert_mask", "msa", "extra_msa"):
        assert not torch.equal(first[name], second[name]), name


def test_masked_positions_and_replacement_letters_both_repeat(forty_rows):
    featurizer = MSAFeaturizer(masked_msa_fraction=0.5, profile_prob=0.4, uniform_prob=0.4)
    first, second = featurizer(forty_rows, seed=11), featurizer(forty_rows, seed=11)
    changed = first["msa"] != first["true_msa"]
    assert (first["msa"][changed] != MASK).sum() > 50  # letters that had to be drawn
    assert not changed[first["bert_mask"] == 0].any()
    assert torch.equal(first["bert_mask"], second["bert_mask"])
    assert torch.equal(first["msa"], second["msa"])


class Copies(Dataset):
    def __init__(self, alignment):
        self.alignment = alignment
        self.featurizer = MSAFeaturizer(max_clusters=8, max_extra=16)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.featurizer(self.alignment, (0, 2, index))


def test_the_number_of_workers_changes_nothing(forty_rows):
    copies = Copies(forty_rows)
    alone, shared = (list(DataLoader(copies, batch_size=None, num_workers=workers)) for workers in (0, 2))
    assert len(alone) == len(shared) == 4
    assert all(equal(first, second) for first, second in zip(alone, shared, strict=True))
    assert not torch.equal(alone[0]["msa"], alone[1]["msa"])


def test_letters_stand_in_alphafolds_order():
    features = MSAFeaturizer(masked_msa_fraction=0.0)(
        read_alignment(f">query\n{MSA_ALPHABET[:20]}X\n>hit\nUBZJO{'-' * 16}\n"), 0
    )
    assert features["aatype"].tolist() == list(range(21))
    # U, B, Z, J, O are C 4, D 3, E 6, X, X here; HHblits' order would give 1, 2, 3, 20, 20.
    assert features["true_msa"][1].tolist() == [4, 3, 6, UNKNOWN, UNKNOWN] + [GAP] * 16
    assert features["target_feat"][:, 0].sum() == 0
    assert torch.equal(features["target_feat"][:, 1:], torch.eye(21))


def test_a_gap_in_the_query_is_x_in_aatype_and_a_gap_in_the_msa():
    features = MSAFeaturizer(masked_msa_fraction=0.0)(Alignment(np.array([[0, GAP, 7], [3, 4, 5]])), 0)
    assert features["aatype"].tolist() == [0, UNKNOWN, 7]
    assert features["true_msa"][0].tolist() == [0, GAP, 7]


def test_extra_rows_shape_the_clusters_before_the_surplus_is_dropped(forty_rows):
    many, none = (MSAFeaturizer(max_clusters=5, max_extra=number)(forty_rows, 4) for number in (1024, 0))
    assert many["extra_msa"].shape == (35, 12)
    assert none["extra_msa"].shape == (0, 12)
    assert torch.equal(many["cluster_profile"], none["cluster_profile"])
    assert (many["cluster_profile"] < 0.99).any(-1).all()


def test_crops_are_cut_out_of_the_whole_chains_features_labels_included(forty_rows):
    distances = torch.arange(144.0).reshape(12, 12)
    labels = {"distances": distances}
    whole = MSAFeaturizer(max_clusters=5, max_extra=7)(forty_rows, 9, labels)
    cropped = MSAFeaturizer(max_clusters=5, max_extra=7, crop_size=4)(forty_rows, 9, labels)
    start = int(cropped["residue_index"][0])
    kept = slice(start, start + 4)
    assert cropped["residue_index"].tolist() == list(range(start, start + 4))
    assert torch.equal(cropped["distances"], distances[kept, kept])
    assert torch.equal(cropped["msa_feat"], whole["msa_feat"][:, kept])
    assert torch.equal(cropped["extra_msa"], whole["extra_msa"][:, kept])
    assert torch.equal(cropped["msa_gap_fraction"], whole["msa_gap_fraction"])


def test_every_place_of_the_crop_is_drawn(forty_rows):
    featurizer = MSAFeaturizer(max_clusters=1, max_extra=0, crop_size=9)
    assert {int(featurizer(forty_rows, seed)["residue_index"][0]) for seed in range(60)} == {0, 1, 2, 3}


def test_a_chain_shorter_than_the_crop_stays_whole(forty_rows):
    assert MSAFeaturizer(crop_size=13)(forty_rows, 0)["aatype"].shape == (12,)


def test_labels_are_copied(forty_rows):
    distances = torch.zeros(12, 12)
    MSAFeaturizer()(forty_rows, 0, {"distances": distances})["distances"].fill_(1)
    assert not distances.any()


def test_labels_must_be_declared_and_fit(forty_rows):
    with pytest.raises(FeatureError, match="N_res is 11 in feature 'distances', but 12 in 'aatype'"):
        MSAFeaturizer()(forty_rows, 0, {"distances": torch.zeros(11, 11)})
    with pytest.raises(FeatureError, match="'weight' is not declared"):
        MSAFeaturizer()(forty_rows, 0, {"weight": torch.ones(12)})
    featurizer = MSAFeaturizer(crop_size=5, declared={**FEATURES, "weight": Feature(("N_res",))})
    assert featurizer(forty_rows, 0, {"weight": torch.ones(12)})["weight"].shape == (5,)


def test_leaving_a_step_out_leaves_the_draws_of_the_others(forty_rows):
    full, without = (MSAFeaturizer(max_clusters=8, max_extra=16) for _ in range(2))
    del without.steps["mask"]
    first, second = full(forty_rows, 0), without(forty_rows, 0)
    assert torch.equal(first["true_msa"], second["true_msa"])
    assert torch.equal(first["extra_msa"], second["extra_msa"])
    assert torch.equal(second["msa"], second["true_msa"])
    assert second["bert_mask"].sum() == 0


def test_a_step_can_be_replaced(forty_rows):
    featurizer = MSAFeaturizer(max_clusters=4)
    featurizer.steps["sample_rows"] = lambda features, generator: steps.split_rows(features, np.arange(40), 4)
    features = featurizer(forty_rows, 0)
    assert torch.equal(features["true_msa"], torch.from_numpy(forty_rows.msa[:4]).long())


def test_block_deletion_leaves_the_profile_of_all_rows_and_fewer_rows(forty_rows):
    plain, fewer = MSAFeaturizer()(forty_rows, 0), MSAFeaturizer(deleted_blocks=2)(forty_rows, 0)
    assert len(plain["msa"]) == 40
    assert 16 <= len(fewer["msa"]) < 40
    assert torch.equal(fewer["hhblits_profile"], plain["hhblits_profile"])
    assert torch.equal(fewer["true_msa"][0], plain["true_msa"][0])


def test_the_alignment_given_is_left_as_it_was(forty_rows):
    before = forty_rows.msa.copy(), forty_rows.deletions
    features = MSAFeaturizer(clean=False)(forty_rows, 0)
    for value in features.values():
        value.fill_(1)
    np.testing.assert_array_equal(forty_rows.msa, before[0])
    np.testing.assert_array_equal(forty_rows.deletions, before[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_clusters": 0}, "max_clusters must be at least 1, got 0"),
        ({"max_extra": -1}, "max_extra must be at least 0, got -1"),
        ({"crop_size": 0}, "crop_size must be at least 1, got 0"),
        ({"deleted_blocks": -2}, "deleted_blocks must be at least 0, got -2"),
        ({"masked_msa_fraction": 1.5}, "masked_msa_fraction must lie within 0 and 1, got 1.5"),
        ({"same_prob": -0.1}, "same_prob must lie within 0 and 1, got -0.1"),
        ({"profile_prob": 0.6, "same_prob": 0.5}, "add up to 1.2, more than 1"),
    ],
)
def test_numbers_out_of_range_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MSAFeaturizer(**arguments)


def test_a_small_training_sample_takes_little_time():
    generator = np.random.default_rng(0)
    alignment = Alignment(generator.integers(0, 22, (128, 64)), deletions=generator.random((128, 64)) < 0.02)
    featurizer = MSAFeaturizer(max_extra=0)
    times = []
    for seed in range(30):
        start = time.process_time()
        featurizer(alignment, seed)
        times.append(time.process_time() - start)
    assert min(times) < 0.01  # about 1.2 ms on one 2020s core; the margin is for slow machines
