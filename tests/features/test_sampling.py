"""Rows left out and the order of the others."""

import numpy as np

from evoformer.constants import GAP
from evoformer.features.alignment import Alignment
from evoformer.features.sampling import clean_rows, random_row_order, rows_after_block_deletion


def test_duplicates_and_empty_rows_are_dropped_and_counted():
    empty = [GAP] * 3
    rows = np.array([[0, 1, 2], [0, GAP, 2], [0, GAP, 2], empty, [0, 1, 2], empty, [0, 1, 3]])
    deletions = np.zeros(rows.shape, np.int32)
    deletions[2, 1] = 4  # of a duplicate: gone with it
    deletions[6, 2] = 5
    alignment, N_duplicate, N_empty = clean_rows(Alignment(rows, deletions=deletions))
    assert alignment.msa.tolist() == [[0, 1, 2], [0, GAP, 2], [0, 1, 3]]
    assert alignment.deletions.tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 5]]
    assert (N_duplicate, N_empty) == (3, 1)


def test_the_query_stays_even_if_empty():
    alignment, N_duplicate, N_empty = clean_rows(Alignment(np.array([[GAP, GAP], [0, 1], [GAP, GAP]])))
    assert alignment.msa.tolist() == [[GAP, GAP], [0, 1]]
    assert (N_duplicate, N_empty) == (1, 0)


def test_the_order_starts_with_the_query_and_holds_every_row_once():
    orders = [random_row_order(7, np.random.default_rng(seed)) for seed in range(300)]
    assert all(order[0] == 0 and sorted(order) == list(range(7)) for order in orders)
    counts = np.bincount([order[1] for order in orders], minlength=7)
    assert counts[0] == 0
    assert counts[1:].min() > 25  # every other row comes second, about 50 times
    assert random_row_order(1, np.random.default_rng(0)).tolist() == [0]


def test_block_deletion_takes_neighbours_but_never_the_query():
    for seed in range(50):
        kept = rows_after_block_deletion(20, 1, 0.3, np.random.default_rng(seed))
        gone = np.setdiff1d(np.arange(20), kept)
        assert kept[0] == 0
        assert 1 <= len(gone) <= 6
        np.testing.assert_array_equal(gone, np.arange(gone[0], gone[0] + len(gone)))
        assert len(gone) == 6 or gone[-1] == 19
    assert rows_after_block_deletion(1, 5, 0.3, np.random.default_rng(0)).tolist() == [0]
    assert rows_after_block_deletion(3, 5, 0.3, np.random.default_rng(0)).tolist() == [0, 1, 2]
