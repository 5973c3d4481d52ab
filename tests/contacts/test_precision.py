"""Contact precision on matrices small enough to count by hand."""

import numpy as np
import pytest

from evoformer.contacts.precision import contact_precision

L = 10  # pairs at least 6 apart: 4 + 3 + 2 + 1 = 10


def matrix(value: float, pairs: dict[tuple[int, int], float]) -> np.ndarray:
    filled = np.full((L, L), value, float)
    for (i, j), special in pairs.items():
        filled[i, j] = filled[j, i] = special
    return filled


def test_counts_contacts_among_the_highest_scores() -> None:
    scores = matrix(0, {(0, 6): 9, (0, 7): 8, (0, 8): 7, (0, 9): 6, (1, 7): 5})
    distances = matrix(20, {(0, 6): 7.9, (0, 8): 3, (1, 7): 8.0, (3, 9): 5})
    precision = contact_precision(scores, distances)
    assert precision.top == {1: 3 / 10, 2: 2 / 5, 5: 1 / 2}
    assert precision.chance == 3 / 10


def test_pairs_close_along_the_chain_are_not_judged() -> None:
    scores, distances = matrix(0, {(0, 5): 9, (2, 9): 1}), matrix(20, {(0, 5): 4})
    assert contact_precision(scores, distances, divisors=[10]).top == {10: 0.0}
    assert contact_precision(scores, distances, divisors=[10], min_separation=5).top == {10: 1.0}


def test_unresolved_residues_count_neither_as_pairs_nor_in_l() -> None:
    scores, distances = matrix(0, {(0, 9): 9, (0, 8): 8, (1, 8): 7}), matrix(20, {(0, 8): 4, (0, 9): 4})
    distances[9], distances[:, 9] = np.nan, np.nan
    precision = contact_precision(scores, distances, divisors=[4, 5])
    assert precision.top == {4: 1 / 2, 5: 1.0}  # the top 9 // 4 and 9 // 5
    assert precision.chance == 1 / 6


def test_at_least_one_pair_is_taken() -> None:
    scores, distances = matrix(0, {(0, 9): 9}), matrix(20, {(0, 9): 4})
    assert contact_precision(scores, distances, divisors=[L + 1]).top == {L + 1: 1.0}


def test_equal_scores_go_in_the_order_of_the_pairs() -> None:
    distances = matrix(20, {(0, 6): 4, (0, 8): 4})
    assert contact_precision(np.zeros((L, L)), distances, divisors=[10, 5, 3]).top == {10: 1.0, 5: 1 / 2, 3: 2 / 3}


def test_only_the_upper_triangle_of_scores_is_read() -> None:
    scores = matrix(0, {(0, 9): 5})
    scores[9, 0] = -5
    assert contact_precision(scores, matrix(20, {(0, 9): 4}), divisors=[10]).top == {10: 1.0}


def test_the_cutoff_can_be_another() -> None:
    scores, distances = matrix(0, {(0, 9): 5}), matrix(20, {(0, 9): 11})
    assert contact_precision(scores, distances, divisors=[10], cutoff=12.0).top == {10: 1.0}


@pytest.mark.parametrize("distances", [np.zeros((6, 6)), np.full((L, L), np.nan)], ids=["short", "unresolved"])
def test_without_a_pair_there_is_no_precision(distances: np.ndarray) -> None:
    precision = contact_precision(np.zeros(distances.shape), distances)
    assert np.isnan([*precision.top.values(), precision.chance]).all()


@pytest.mark.usefixtures("without_shape_checks")
def test_matrices_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(10, 10\), distances \(9, 9\)"):
        contact_precision(np.zeros((L, L)), np.zeros((9, 9)))


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="1 of 10 scores are NaN"):
        contact_precision(matrix(0, {(0, 9): np.nan}), matrix(20, {}))
