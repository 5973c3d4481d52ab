"""Alignment: what it holds, what a selection of rows and columns keeps, and which rows are duplicates."""

import numpy as np
import pytest

from evoformer.features.alignment import Alignment, AlignmentError

N_seq, N_res = 7, 5


@pytest.fixture
def alignment():
    rng = np.random.default_rng(1)
    return Alignment(
        rng.integers(0, 22, (N_seq, N_res)),
        [f"id{i}" for i in range(N_seq)],
        [f"id{i} described" for i in range(N_seq)],
        rng.integers(0, 3, (N_seq, N_res)),
        {"format": "a3m"},
    )


def test_letters_are_numbered_as_in_alphafold():
    alignment = Alignment([[12, 11, 0], [20, 21, 19]])
    assert alignment.query == "MKA"
    assert alignment.sequence(1) == "X-V"
    assert (alignment.N_seq, alignment.N_res, len(alignment)) == (2, 3, 2)
    assert alignment.msa.dtype == np.uint8


def test_names_are_made_up_and_deletions_are_zero_unless_given():
    alignment = Alignment([[1, 2], [3, 4]])
    assert alignment.ids == alignment.descriptions == ["sequence_0", "sequence_1"]
    assert alignment.deletions.tolist() == [[0, 0], [0, 0]]
    assert alignment.deletions.dtype == np.int32
    assert alignment.metadata == {}


def test_deletions_may_be_dense_or_sparse():
    dense = [[0, 0, 4], [1, 0, 0]]
    sparse = (np.array([1, 0]), np.array([0, 2]), np.array([1, 4]))
    msa = np.zeros((2, 3), np.uint8)
    assert Alignment(msa, deletions=dense).deletions.tolist() == dense
    assert Alignment(msa, deletions=sparse).deletions.tolist() == dense


ROWS = [slice(None), slice(4, 1, -2), 3, -1, [5, 0, 5], np.array([2, 2, 1, 6]), np.arange(N_seq) % 3 == 0]
COLUMNS = [slice(None), slice(1, 4), 2, [3, 0, 0], np.arange(N_res) % 2 == 1]


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("columns", COLUMNS, ids=str)
def test_a_selection_takes_the_same_cells_of_letters_and_deletions(alignment, rows, columns):
    chosen = alignment[rows, columns]
    expected_rows = np.atleast_1d(np.arange(N_seq)[rows])
    cells = np.ix_(expected_rows, np.atleast_1d(np.arange(N_res)[columns]))
    np.testing.assert_array_equal(chosen.msa, alignment.msa[cells])
    np.testing.assert_array_equal(chosen.deletions, alignment.deletions[cells])
    assert chosen.ids == [f"id{i}" for i in expected_rows]
    assert chosen.descriptions == [f"id{i} described" for i in expected_rows]
    assert chosen.metadata == {"format": "a3m"}


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_rows_alone_keep_every_column(alignment, rows):
    np.testing.assert_array_equal(alignment[rows].msa, alignment[rows, :].msa)
    np.testing.assert_array_equal(alignment[rows].deletions, alignment[rows, :].deletions)


def test_a_selection_keeps_the_chains_of_its_rows_and_columns():
    coverage = np.array([[True, True], [True, False], [False, True]])
    metadata = {"chain_lengths": [3, 2], "copies": [1, 4], "row_coverage": coverage}
    chosen = Alignment(np.zeros((3, 5), np.uint8), metadata=metadata)[[0, 2], 2:]
    assert chosen.metadata["chain_lengths"] == [1, 2]
    assert chosen.metadata["copies"] == [1, 4]
    assert chosen.metadata["row_coverage"].tolist() == [[True, True], [False, True]]


def test_the_first_of_equal_rows_stays_in_place_with_its_deletions():
    msa = [[1, 2], [21, 2], [1, 2], [0, 5], [21, 2]]
    deletions = [[0, 0], [0, 3], [9, 9], [1, 0], [8, 8]]
    unique = Alignment(msa, deletions=deletions).deduplicate()
    assert unique.msa.tolist() == [[1, 2], [21, 2], [0, 5]]
    assert unique.deletions.tolist() == [[0, 0], [0, 3], [1, 0]]
    assert unique.ids == ["sequence_0", "sequence_1", "sequence_3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"msa": [0, 1]}, r"shape \(2,\)"),
        ({"msa": np.zeros((0, 3))}, r"shape \(0, 3\)"),
        ({"msa": [[0, 22]]}, "0 to 21, it holds 0 to 22"),
        ({"msa": [[-1, 2]]}, "0 to 21, it holds -1 to 2"),
        ({"msa": [[0, 1]], "ids": ["a", "b"]}, "1 rows, but there are 2 ids"),
        ({"msa": [[0, 1]], "descriptions": []}, "1 rows, but there are 0 descriptions"),
        ({"msa": [[0, 1]], "deletions": [[0, 1, 2]]}, r"\(1, 2\), deletions have \(1, 3\)"),
        ({"msa": [[0, 1]], "deletions": ([1], [0], [3])}, "1 rows, deletions are in rows 1 to 1"),
        ({"msa": [[0, 1]], "deletions": ([0, 0], [1, -1], [3, 4])}, "2 columns, deletions are in columns -1 to 1"),
    ],
)
def test_sizes_and_letters_that_do_not_fit_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Alignment(**arguments)


def test_an_error_carries_the_place_and_names_the_file():
    error = AlignmentError("wrong", path="a.a3m", record=2, line=4, column=6)
    assert str(error) == "a.a3m: wrong"
    assert (error.path, error.record, error.line, error.column) == ("a.a3m", 2, 4, 6)
    assert AlignmentError("wrong").line is None
