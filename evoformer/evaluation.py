"""How well a model finds the contacts of families, beside its controls: fewer rows, shuffled columns, DCA, chance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evoformer.contacts.dca import mean_field_dca
from evoformer.contacts.precision import ContactPrecision, contact_precision
from evoformer.features.alignment import Alignment
from evoformer.features.families import Family
from evoformer.model import ContactModel
from evoformer.predict import predict

DIVISORS = (1, 2, 5)  # precision of the top L, L/2 and L/5 pairs


@dataclass(frozen=True)
class Score:
    """Precision over families.

    Attributes:
        mean: of the top L/k pairs, for each divisor k.
        spread: the standard deviation over families, for each divisor k.
        N_family: how many families were scored.
    """

    mean: dict[int, float]
    spread: dict[int, float]
    N_family: int


def score_family(
    model: ContactModel, family: Family, *, depths: Sequence[int] = (1, 32, 128), seed: int = 0
) -> dict[str, dict[int, float]]:
    """Precision of the model, of its controls and of mean-field DCA on a family.

    The deepest setting is tried again with every column shuffled over the rows below the query: the profile stays,
    covariation goes. What the model loses by it is what it has read from covariation.

    Args:
        model: the model.
        family: its first rows are used, as many as a depth says.
        depths: numbers of rows, ascending.
        seed: of the shuffling.

    Returns:
        A row name to the precision of the top L/k pairs by divisor k.
    """
    scores: dict[str, dict[int, float]] = {}

    def judge(name: str, matrix: np.ndarray) -> ContactPrecision:
        precision = contact_precision(matrix, family.distances, divisors=DIVISORS)
        scores[name] = precision.top
        return precision

    for depth in depths:
        judge(f"trunk, N = {depth}", predict(model, family.alignment[:depth], max_seqs=depth).contacts)
    deepest = family.alignment[: depths[-1]]
    shuffled = shuffle_columns(deepest, seed)
    judge(f"trunk, N = {depths[-1]}, columns shuffled", predict(model, shuffled, max_seqs=depths[-1]).contacts)
    precision = judge(f"mean-field DCA, N = {depths[-1]}", mean_field_dca(deepest.msa))
    scores["chance"] = dict.fromkeys(DIVISORS, precision.chance)
    return scores


def shuffle_columns(alignment: Alignment, seed: int) -> Alignment:
    """The alignment with each column permuted over the rows below the query: the same profile, no covariation."""
    generator = np.random.default_rng(seed)
    msa = alignment.msa.copy()
    msa[1:] = generator.permuted(msa[1:], axis=0)
    return Alignment(msa, alignment.ids)


def summarize(scores: Sequence[dict[str, dict[int, float]]]) -> dict[str, Score]:
    """Mean and spread over families of what `score_family` returns, row by row."""
    summary = {}
    for name in scores[0]:
        values = {k: np.array([score[name][k] for score in scores]) for k in scores[0][name]}
        summary[name] = Score(
            {k: float(np.nanmean(value)) for k, value in values.items()},
            {k: float(np.nanstd(value)) for k, value in values.items()},
            len(scores),
        )
    return summary
