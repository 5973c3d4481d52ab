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
    msa = [[0, 0, 0, 0, 0], [0, 0, 0, 21, 21], [21, 21, 21, 0, 0]]
    chosen = Alignment(msa, metadata=metadata)[[0, 2], 2:]
    assert chosen.metadata["chain_lengths"] == [1, 2]
    assert chosen.metadata["copies"] == [1, 4]
    assert chosen.metadata["row_coverage"].tolist() == [[True, True], [False, True]]


def test_a_selection_of_columns_asks_anew_which_chains_a_row_covers():
    coverage = np.array([[True, True], [True, True]])
    metadata = {"chain_lengths": [2, 3], "copies": [1, 1], "row_coverage": coverage}
    alignment = Alignment([[0, 0, 0, 0, 0], [3, 21, 21, 21, 4]], metadata=metadata)
    chosen = alignment[:, [3, 1]]
    assert chosen.metadata["chain_lengths"] == [1, 1]
    assert chosen.metadata["row_coverage"].tolist() == [[True, True], [False, False]]
    assert alignment[:, 2:].metadata["row_coverage"].tolist() == [[False, True], [False, True]]


def test_equal_means_letters_deletions_and_ids(alignment):
    same = Alignment(alignment.msa, alignment.ids, None, alignment.deletions)
    assert alignment == same
    assert alignment == alignment[::-1][::-1]
    assert alignment != alignment[:3]
    assert alignment != Alignment(alignment.msa, alignment.ids)
    assert alignment != Alignment(alignment.msa, None, None, alignment.deletions)
    assert alignment != Alignment((alignment.msa + 1) % 22, alignment.ids, None, alignment.deletions)
    assert alignment != "MKT"


def of_rows(*rows):
    return Alignment([["ARNDCQEGHILKMFPSTWYVX-".index(letter) for letter in row] for row in rows])


def test_rows_are_filtered_by_their_coverage_of_the_query_and_identity_with_it():
    alignment = of_rows("ARND", "AR--", "ARNE", "GG--", "----")
    kept = lambda **options: alignment.filter(**options).ids  # noqa: E731
    assert kept() == alignment.ids
    assert kept(min_coverage=0.5) == ["sequence_0", "sequence_1", "sequence_2", "sequence_3"]
    assert kept(min_coverage=0.51) == ["sequence_0", "sequence_2"]
    assert kept(min_identity=0.75) == ["sequence_0", "sequence_1", "sequence_2"]
    assert kept(min_identity=0.76) == ["sequence_0", "sequence_1"]
    assert kept(max_identity=0.75) == ["sequence_0", "sequence_2", "sequence_3", "sequence_4"]
    assert of_rows("A-", "AR").filter(min_coverage=1).ids == ["sequence_0", "sequence_1"]
    with pytest.raises(ValueError, match="min_identity is a share between 0 and 1, not 35"):
        alignment.filter(min_identity=35)


def test_neff_counts_rows_by_their_neighbours():
    assert of_rows("ARNDC", "ARNDC", "ARNDE", "GGGGG").neff() == pytest.approx(2)
    assert of_rows("ARNDC", "ARNDC", "ARNDE", "GGGGG").neff(identity=0.9) == pytest.approx(3)


def test_rows_of_one_query_are_stacked():
    one = Alignment([[1, 2], [3, 21]], ["q", "a"], ["q", "a first"], [[0, 0], [0, 4]], {"format": "a3m", "x": 1})
    two = Alignment([[1, 2], [5, 6]], ["q", "b"], ["q", "b second"], [[0, 0], [7, 0]], {"format": "fasta", "x": 1})
    both = one.concatenate(two, one)
    assert both.ids == ["q", "a", "q", "b", "q", "a"]
    assert both.descriptions[3] == "b second"
    assert both.msa.tolist() == [*one.msa.tolist(), *two.msa.tolist(), *one.msa.tolist()]
    assert both.deletions.tolist() == [[0, 0], [0, 4], [0, 0], [7, 0], [0, 0], [0, 4]]
    assert both.metadata == {"x": 1}
    with pytest.raises(ValueError, match="'q' of 2 and 'sequence_0' of 3 residues"):
        one.concatenate(Alignment([[1, 2, 3]]))


def test_columns_of_chains_are_joined():
    one = Alignment([[1, 2], [3, 21]], ["q", "a"], deletions=[[0, 0], [0, 4]])
    two = Alignment([[1, 2, 3], [21, 21, 21]], ["p", "b"], deletions=[[0, 0, 0], [5, 0, 0]])
    both = one.concatenate(two, axis="columns")
    assert both.ids == ["q\tp", "a\tb"]
    assert both.msa.tolist() == [[1, 2, 1, 2, 3], [3, 21, 21, 21, 21]]
    assert both.deletions.tolist() == [[0, 0, 0, 0, 0], [0, 4, 5, 0, 0]]
    assert (both.metadata["chain_lengths"], both.metadata["copies"]) == ([2, 3], [1, 1])
    assert both.metadata["row_coverage"].tolist() == [[True, True], [True, False]]
    with pytest.raises(ValueError, match="2 and of 1 rows"):
        one.concatenate(Alignment([[1]]), axis="columns")
    with pytest.raises(ValueError, match="'rows' or 'columns', not 'chains'"):
        one.concatenate(two, axis="chains")


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
    error = AlignmentError("wrong", path="a.a3m", record=2, line=4, column=6, id="hit")
    assert str(error) == "a.a3m: wrong"
    assert (error.path, error.record, error.line, error.column, error.id) == ("a.a3m", 2, 4, 6, "hit")
    assert AlignmentError("wrong").line is None


def test_letters_read_as_others_are_kept_beside_the_numbers():
    ambiguous = (np.array([0, 1, 1]), np.array([2, 0, 2]), np.frombuffer(b"BUZ", np.uint8))
    alignment = Alignment([[0, 21, 3], [4, 1, 6], [4, 1, 6]], ambiguous=ambiguous)
    text = lambda alignment: [row.tobytes().decode() for row in alignment.letters]  # noqa: E731
    assert text(alignment) == ["A-B", "URZ", "CRE"]
    assert alignment.sequence(1) == "CRE"
    assert alignment.aatype.tolist() == [0, 20, 20]
    assert text(alignment[[2, 1, 1], ::-2]) == ["EC", "ZU", "ZU"]
    assert alignment[1:].aatype.tolist() == [20, 1, 20]
    assert text(alignment.concatenate(alignment)) == 2 * text(alignment)
    assert text(alignment.concatenate(alignment, axis="columns")) == [2 * row for row in text(alignment)]
    assert alignment != Alignment(alignment.msa)
    assert alignment.deduplicate().N_seq == 3
    assert Alignment(alignment.msa).deduplicate().N_seq == 2
