"""Toy families: an alignment and the distances of its fold, in splits that share no fold."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float16, Float32, Int32, UInt8

from evoformer.constants import MSA_ALPHABET, RESIDUES
from evoformer.simulate.folds import contact_overlap, pair_distances, random_fold
from evoformer.simulate.potts import potts_on_fold
from evoformer.simulate.residues import BACKGROUND
from evoformer.simulate.tree import sample_families

MAX_OVERLAP = 0.5  # of the contacts of two folds, see contact_overlap: above it the later one is drawn anew
MAX_DRAWS = 1000
FAMILIES_AT_ONCE = 16  # sampled together
MEAN_INSERTIONS = 0.01  # per place and row
INSERTION_UNEVENNESS = 0.25  # over places, as a gamma distribution's shape: they prefer a few
MEAN_INSERTION_LENGTH = 2.0


@dataclass(frozen=True)
class Split:
    """How many families, of how many sequences and residues; ranges include both ends."""

    N_family: int
    N_seq: tuple[int, int]
    N_res: tuple[int, int] = (48, 80)


@dataclass(frozen=True)
class ToyFamily:
    """An alignment in the numbers of `MSA_ALPHABET`, without X and the query first, and the query's structure.

    Shapes:
        msa: [N_seq, N_res]
        deletions: [N_seq, N_res], how many residues a row has to the left of a column that the query lacks
        distances: [N_res, N_res] between C-betas in Angstrom, rounded to 0.1
    """

    msa: UInt8[np.ndarray, "N_seq N_res"]
    deletions: Int32[np.ndarray, "N_seq N_res"]
    distances: Float16[np.ndarray, "N_res N_res"]


def make_families(splits: Mapping[str, Split], seed: int = 0) -> dict[str, list[ToyFamily]]:
    """Families of every split, each with a fold of its own: of no two do the contacts overlap by more than half.

    The same seed and splits give the same families, given the version of NumPy and the kind of processor.
    Raises ValueError where chains are so short, and so many, that no new fold is found.
    """
    rng = np.random.default_rng(seed)
    members = [split for split in splits.values() for _ in range(split.N_family)]
    folds = _distinct_folds([int(rng.integers(*split.N_res, endpoint=True)) for split in members], rng)
    N_seqs = [int(rng.integers(*split.N_seq, endpoint=True)) for split in members]
    alignments: dict[int, np.ndarray] = {}
    by_length = np.argsort([len(fold) for fold in folds], kind="stable")  # little is computed in vain
    for start in range(0, len(folds), FAMILIES_AT_ONCE):
        batch = by_length[start : start + FAMILIES_AT_ONCE].tolist()
        models = [potts_on_fold(folds[k], rng) for k in batch]
        alignments.update(zip(batch, sample_families(models, [N_seqs[k] for k in batch], rng), strict=True))
    families = iter(
        [
            ToyFamily(alignments[k], _insertions(alignments[k].shape, rng), _rounded(pair_distances(fold)))
            for k, fold in enumerate(folds)
        ]
    )
    return {name: [next(families) for _ in range(split.N_family)] for name, split in splits.items()}


def a3m_text(family: ToyFamily, name: str, rng: np.random.Generator) -> str:
    """The family in A3M, rows named NAME_0, NAME_1, ...; insertions are in lower case, their letters drawn here."""
    letters = np.array(list(MSA_ALPHABET))[family.msa]
    lines = []
    for number, (row, inserted) in enumerate(zip(letters.tolist(), family.deletions, strict=True)):
        for column in np.flatnonzero(inserted):
            extra = rng.choice(list(RESIDUES.lower()), inserted[column], p=BACKGROUND)
            row[column] = "".join(extra) + row[column]
        lines += [f">{name}_{number}", "".join(row)]
    return "\n".join(lines) + "\n"


def _distinct_folds(N_reses: list[int], rng: np.random.Generator) -> list[Float32[np.ndarray, "N_res 3"]]:
    """One fold for each length; drawn again where its contacts overlap too much with an earlier one's."""
    folds: list[np.ndarray] = []
    distances: list[np.ndarray] = []
    for N_res in N_reses:
        for _ in range(MAX_DRAWS):
            fold = random_fold(N_res, rng)
            of_fold = pair_distances(fold)
            if all(contact_overlap(of_fold, other) <= MAX_OVERLAP for other in distances):
                break
        else:
            raise ValueError(
                f"none of {MAX_DRAWS} folds of {N_res} residues differs enough from the {len(folds)} drawn before: "
                "ask for fewer families or longer chains"
            )
        folds.append(fold)
        distances.append(of_fold)
    return folds


def _insertions(shape: tuple[int, ...], rng: np.random.Generator) -> Int32[np.ndarray, "N_seq N_res"]:
    """Lengths of the insertions before each column; none in the query, nor before its first residue."""
    N_seq, N_res = shape
    rate = np.minimum(rng.gamma(INSERTION_UNEVENNESS, MEAN_INSERTIONS / INSERTION_UNEVENNESS, N_res), 0.5)
    lengths = rng.geometric(1 / MEAN_INSERTION_LENGTH, (N_seq, N_res)) * (rng.random((N_seq, N_res)) < rate)
    lengths[0], lengths[:, 0] = 0, 0
    return lengths.astype(np.int32)


def _rounded(distances: Float32[np.ndarray, "N_res N_res"]) -> Float16[np.ndarray, "N_res N_res"]:
    return np.round(distances, 1).astype(np.float16)
