"""Mean-field DCA: the plain formulas, how deep and shallow alignments are inverted, and the smallest alignments."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from evoformer.constants import GAP, MSA_ALPHABET, UNKNOWN
from evoformer.contacts.dca import mean_field_dca
from evoformer.features.identity import neff, sequence_weights


def letters(*rows: str) -> np.ndarray:
    return np.array([[MSA_ALPHABET.index(letter) for letter in row] for row in rows], np.uint8)


def plain_weights(msa: np.ndarray) -> list[float]:
    weights = []
    for row in msa:
        same = [sum(int(a == b) for a, b in zip(row, other, strict=True)) for other in msa]
        weights.append(1 / sum(count >= 0.8 * msa.shape[1] for count in same))
    return weights


def plain_dca(msa: np.ndarray) -> np.ndarray:
    """The definition, a number at a time; states 0 to 19 are the residues and 20 is the gap."""
    rows = [[min(int(x), 20) for x in row] for row in msa]
    rows = [row for row in rows if sum(x == 20 for x in row) <= 0.5 * len(row)]
    weights = plain_weights(np.array(rows))
    total, L, q = sum(weights), len(rows[0]), 21

    def single(i: int, a: int) -> float:
        return 0.5 / q + 0.5 * sum(w for w, row in zip(weights, rows, strict=True) if row[i] == a) / total

    def pair(i: int, a: int, j: int, b: int) -> float:
        if i == j:
            return single(i, a) if a == b else 0.0
        both = sum(w for w, row in zip(weights, rows, strict=True) if row[i] == a and row[j] == b)
        return 0.5 / q**2 + 0.5 * both / total

    cells = [(i, a) for i in range(L) for a in range(q - 1)]
    covariance = [[pair(i, a, j, b) - single(i, a) * single(j, b) for j, b in cells] for i, a in cells]
    inverse = np.linalg.inv(np.array(covariance))
    norm = np.zeros((L, L))
    for i in range(L):
        for j in range(L):
            if i == j:
                continue
            couplings = np.zeros((q, q))
            couplings[:20, :20] = -inverse[20 * i : 20 * i + 20, 20 * j : 20 * j + 20]
            squares = 0.0
            for a in range(20):
                for b in range(20):
                    row, column = couplings[a].sum() / q, couplings[:, b].sum() / q
                    squares += (couplings[a, b] - row - column + couplings.sum() / q**2) ** 2
            norm[i, j] = math.sqrt(squares)
    scores = np.zeros((L, L))
    mean = norm.sum() / (L * (L - 1))
    for i in range(L):
        for j in range(L):
            if i != j:
                scores[i, j] = norm[i, j] - norm[i].sum() / (L - 1) * norm[j].sum() / (L - 1) / mean
    return scores


@pytest.fixture
def small() -> np.ndarray:
    """Twelve rows: with gaps, an X, two near copies, and one row that is mostly gaps."""
    return letters(
        "ARNDC", "ARNDC", "ARNDW", "GHILK", "GHIL-", "MFPST", "MFPXT", "A--ST", "V---D", "WYVKE", "QEGKE", "ALNDC"
    )  # fmt: skip


def test_scores_are_those_of_the_plain_formulas(small: np.ndarray) -> None:
    assert_allclose(mean_field_dca(small), plain_dca(small), atol=1e-9)


def test_scores_of_more_rows_than_states_are_those_of_the_plain_formulas() -> None:
    deep = np.random.default_rng(0).choice([0, 4, 7, 19, GAP], (67, 3), p=[0.3, 0.2, 0.2, 0.2, 0.1]).astype(np.uint8)
    assert len(deep) > 20 * deep.shape[1]
    assert_allclose(mean_field_dca(deep), plain_dca(deep), atol=1e-9)


def test_weights_are_those_of_the_plain_count(small: np.ndarray) -> None:
    weights = sequence_weights(small)
    assert_allclose(weights, plain_weights(small))
    assert weights[0] == 1 / 4  # its copy, and the two rows that differ in one column of five: exactly 80 %
    assert neff(small) == pytest.approx(sum(plain_weights(small)))


def test_gaps_are_a_letter_to_the_weights() -> None:
    assert_allclose(sequence_weights(letters("A----", "R----", "AAAAA")), [0.5, 0.5, 1])


def test_weights_of_more_rows_than_a_block_are_the_same(monkeypatch: pytest.MonkeyPatch, small: np.ndarray) -> None:
    whole = sequence_weights(small)
    monkeypatch.setattr("evoformer.features.identity.ROWS_AT_ONCE", 5)
    assert_allclose(sequence_weights(small), whole)


def test_an_unknown_residue_counts_as_a_gap(small: np.ndarray) -> None:
    assert_allclose(mean_field_dca(small), mean_field_dca(np.where(small == UNKNOWN, GAP, small).astype(np.uint8)))


def test_a_row_of_mostly_gaps_changes_nothing(small: np.ndarray) -> None:
    with_more = np.concatenate([small, letters("R---W", "---KE")])
    assert_allclose(mean_field_dca(with_more), mean_field_dca(small))


def test_covarying_columns_score_highest() -> None:
    rng = np.random.default_rng(3)
    msa = rng.integers(0, 20, (150, 11), dtype=np.uint8)
    msa[:, 8] = (msa[:, 2] + 7) % 20
    scores = mean_field_dca(msa)
    assert np.unravel_index(scores.argmax(), scores.shape) == (2, 8)


def test_scores_are_symmetric_with_a_zero_diagonal(small: np.ndarray) -> None:
    scores = mean_field_dca(small)
    assert scores.dtype == np.float64
    assert_allclose(scores, scores.T, atol=0)
    assert not scores.diagonal().any()


@pytest.mark.parametrize("rows", [["ARNDC"], ["AR---", "-----"], ["-----"], ["A"], ["A", "R"], ["AR"]])
def test_the_smallest_alignments_give_numbers(rows: list[str]) -> None:
    scores = mean_field_dca(letters(*rows))
    assert scores.shape == (len(rows[0]), len(rows[0]))
    assert np.isfinite(scores).all()


@pytest.mark.usefixtures("without_shape_checks")
def test_what_is_no_alignment_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(4,\)"):
        mean_field_dca(np.zeros(4, np.uint8))
    with pytest.raises(ValueError, match="number 22, letters are 0 to 21"):
        neff(np.full((2, 3), 22, np.uint8))
    with pytest.raises(ValueError, match="pseudocount is 0"):
        mean_field_dca(np.zeros((2, 3), np.uint8), pseudocount=0)
