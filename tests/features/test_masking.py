"""Masked-MSA corruption: AlphaFold's probabilities, and draws that follow them and their generator only."""

from pathlib import Path

import numpy as np
import pytest

from evoformer.constants import GAP, MASK
from evoformer.features.masking import draw_letters, mask_positions, replacement_probabilities
from evoformer.features.profile import letter_profile
from evoformer.features.steps import mask_msa

GOLDEN = Path(__file__).parents[1] / "golden"


def test_replacements_have_alphafolds_probabilities():
    with np.load(GOLDEN / "features__bert.npz") as golden:
        probabilities = replacement_probabilities(
            golden["output/true_msa"], np.broadcast_to(golden["output/hhblits_profile"], (6, 15, 22))
        )
        np.testing.assert_allclose(probabilities, golden["output/bert_categorical_probs"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("fraction", [0.0, 0.15, 1.0])
def test_each_cell_is_chosen_with_the_fraction_given(fraction):
    positions = mask_positions((100, 90), fraction, np.random.default_rng(0))
    assert positions.shape == (100, 90)
    assert positions.mean() == pytest.approx(fraction, abs=0.015 if 0 < fraction < 1 else 0)


def test_letters_are_drawn_as_often_as_they_are_probable():
    shares = np.zeros(23)
    shares[[1, 4, GAP, MASK]] = 0.1, 0.2, 0.3, 0.4
    letters = draw_letters(np.tile(shares, (20_000, 1)), np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(letters, minlength=23) / 20_000, shares, atol=0.015)


def test_a_letter_of_probability_zero_is_never_drawn():
    shares = replacement_probabilities(
        np.full(50_000, 7), np.tile(np.eye(22)[4], (50_000, 1)), profile_prob=0.5, same_prob=0.3, uniform_prob=0.2
    )
    letters = draw_letters(shares, np.random.default_rng(0))
    assert set(letters.tolist()) == set(range(20))  # not X, not the gap, not the mask token


def corrupted(seed, msa, mask, **shares):
    features = {"msa": msa, "msa_mask": mask, "hhblits_profile": letter_profile(msa)}
    shares = {"profile_prob": 0.1, "same_prob": 0.1, "uniform_prob": 0.1} | shares
    return mask_msa(features, np.random.default_rng(seed), fraction=0.3, **shares)


@pytest.fixture
def msa():
    return np.random.default_rng(1).integers(0, 22, (40, 30), np.uint8)


def test_positions_and_letters_repeat_with_the_generator(msa):
    first, second, other = (corrupted(seed, msa, np.ones(msa.shape)) for seed in (5, 5, 6))
    for name in ("msa", "bert_mask"):
        np.testing.assert_array_equal(first[name], second[name])
        assert (first[name] != other[name]).any()
    np.testing.assert_array_equal(first["true_msa"], msa)


def test_only_chosen_and_real_cells_change(msa):
    mask = np.ones(msa.shape)
    mask[7:, 3:] = 0
    features = corrupted(0, msa, mask, profile_prob=0.0, same_prob=0.0, uniform_prob=0.0)
    chosen = features["bert_mask"] == 1
    assert chosen.any()
    assert not chosen[mask == 0].any()
    assert (features["msa"][chosen] == MASK).all()
    np.testing.assert_array_equal(features["msa"][~chosen], msa[~chosen])


def test_with_everything_kept_the_same_positions_are_still_marked(msa):
    features = corrupted(0, msa, np.ones(msa.shape), profile_prob=0.0, same_prob=1.0, uniform_prob=0.0)
    np.testing.assert_array_equal(features["msa"], msa)
    assert features["bert_mask"].mean() == pytest.approx(0.3, abs=0.05)
