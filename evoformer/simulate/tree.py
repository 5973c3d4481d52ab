"""Sequences of a family that share a history: Gibbs sampling of a Potts model along a growing tree."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8

from evoformer.constants import GAP
from evoformer.simulate.potts import GAP_STATE, N_AMINO_ACIDS, N_STATES, Potts


@dataclass(frozen=True, kw_only=True)
class TreeConfig:
    """The history of a family. Ranges are drawn from uniformly, family by family; a sweep is one update a site."""

    root_sweeps: int = 60  # before the first branching
    depth: tuple[float, float] = (1.0, 4.0)  # sweeps from the root to today
    growth: tuple[float, float] = (0.12, 0.5)  # lineages branch early, near 0, or at a steady rate, at 1
    copies: tuple[float, float] = (0.0, 0.4)  # share of rows that branch off late: close relatives
    copy_age: tuple[float, float] = (0.02, 0.12)  # of those, as a share of the depth
    fragments: float = 0.1  # share of rows that cover a part of the query only
    coverage: tuple[float, float] = (0.4, 0.9)  # of those, as a share of the query


def sample_families(
    models: Sequence[Potts], N_seqs: Sequence[int], rng: np.random.Generator, config: TreeConfig | None = None
) -> list[UInt8[np.ndarray, "N_seq N_res"]]:
    """An alignment for each model, in the numbers of `MSA_ALPHABET`, without X; row 0, the query, has no gap.

    The families are sampled together, because a step on many rows takes hardly longer than one on few.
    """
    config = config or TreeConfig()
    if len(models) != len(N_seqs):
        raise ValueError(f"{len(models)} models, but {len(N_seqs)} numbers of sequences")
    sampler = _GibbsSampler(models, max(N_seqs), rng)
    sampler.run(N_row=1, steps=[config.root_sweeps * n for n in sampler.N_res])

    depth = [round(rng.uniform(*config.depth) * n) for n in sampler.N_res]  # in steps
    histories = [_history(N_seq, steps, rng, config) for N_seq, steps in zip(N_seqs, depth, strict=True)]
    events = sorted(
        (birth, family, row, parent)
        for family, history in enumerate(histories)
        for row, (birth, parent) in enumerate(history, start=1)
    )
    now, N_row = 0, 1
    for birth, family, row, parent in events:
        if birth > now:
            sampler.run(N_row=N_row, steps=[min(birth, end) - min(now, end) for end in depth])
            now = birth
        sampler.states[family, row] = sampler.states[family, parent]
        N_row = max(N_row, row + 1)
    sampler.run(N_row=N_row, steps=[end - min(now, end) for end in depth])

    alignments = []
    for states, N_seq, N_res in zip(sampler.states, N_seqs, sampler.N_res, strict=True):
        rows = np.concatenate([[0], 1 + rng.permutation(N_seq - 1)])
        msa = _with_fragments(states[rows, :N_res], rng, config)
        alignments.append(np.where(msa == GAP_STATE, GAP, msa).astype(np.uint8))
    return alignments


def _history(N_seq: int, steps: int, rng: np.random.Generator, config: TreeConfig) -> list[tuple[int, int]]:
    """Birth, as a step, and parent of rows 1 to N_seq - 1; births never decrease, a parent is an earlier row.

    The tree has N_core ** (t ** growth) lineages after a share t of the time; the copies come after it is complete.
    """
    growth = rng.uniform(*config.growth)
    N_core = min(N_seq, max(2, round(N_seq * (1 - rng.uniform(*config.copies)))))
    late = round(steps * (1 - rng.uniform(*config.copy_age)))
    history = []
    for row in range(1, N_seq):
        share = (np.log(row + 1) / np.log(N_core)) ** (1 / growth)
        birth = int(0.9 * late * share) if row < N_core else late
        history.append((birth, int(rng.integers(min(row, N_core)))))
    return history


def _with_fragments(states: np.ndarray, rng: np.random.Generator, config: TreeConfig) -> np.ndarray:
    """Some rows, never the query, begin or end within the query."""
    N_seq, N_res = states.shape
    states = states.copy()
    for row in range(1, N_seq):
        if rng.random() < config.fragments:
            length = round(N_res * rng.uniform(*config.coverage))
            start = int(rng.integers(N_res - length + 1))
            states[row, :start] = GAP_STATE
            states[row, start + length :] = GAP_STATE
    return states


class _GibbsSampler:
    """States of many families at once, each site updated given all others; families differ in length and in steps."""

    def __init__(self, models: Sequence[Potts], N_row: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self.N_res = [len(model.fields) for model in models]
        # The sites of all families are numbered through: family k has first_site[k] + 0, 1, ...
        self.first_site = np.cumsum([0, *self.N_res[:-1]]).tolist()
        self.fields = np.concatenate([model.fields for model in models])
        site, partner, energies = self._directed(models)
        order = np.argsort(site, kind="stable")
        site, partner, energies = site[order], partner[order], energies[order]
        slot = np.arange(len(site)) - np.searchsorted(site, site)  # the number of a partner among its site's
        N_slot = int(slot.max(initial=0)) + 1
        # A table of energy rows: one for each state of each partner of each site; row 0 is zero, for absent partners.
        self.table = np.concatenate([np.zeros((1, N_STATES), np.float32), *energies])
        self.partner = np.zeros((len(self.fields), N_slot), np.int64)
        self.partner[site, slot] = partner
        self.first_row = np.zeros((len(self.fields), N_slot), np.int64)
        self.first_row[site, slot] = 1 + N_STATES * np.arange(len(site))
        self.is_partner = np.zeros((len(self.fields), N_slot), np.int64)
        self.is_partner[site, slot] = 1

        self.states = np.zeros((len(models), N_row, max(self.N_res)), np.int64)
        for family, model in enumerate(models):
            noise = rng.gumbel(size=(len(model.fields), N_AMINO_ACIDS))
            self.states[family, 0, : len(model.fields)] = (model.fields[:, :N_AMINO_ACIDS] + noise).argmax(axis=1)

    def _directed(self, models: Sequence[Potts]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Every coupling seen from both its sites: site, partner's column, energies [21 partner's states, 21 own]."""
        sites, partners, energies = [], [], []
        for first, model in zip(self.first_site, models, strict=True):
            i, j = model.pairs.T
            sites += [first + i, first + j]
            partners += [j, i]
            energies += [model.couplings.transpose(0, 2, 1), model.couplings]
        return np.concatenate(sites), np.concatenate(partners), np.concatenate(energies)

    def run(self, *, N_row: int, steps: Sequence[int]) -> None:
        """Update one random site of each of the first `N_row` rows, `steps[k]` times in family k."""
        states = self.states[:, :N_row]
        shape = states.shape[:2]
        N_res, first_site, N_step = (np.array(each)[:, None] for each in (self.N_res, self.first_site, steps))
        for step in range(max(steps)):
            column = (self.rng.random(shape) * N_res).astype(np.int64)
            site = first_site + column
            partner_states = np.take_along_axis(states, self.partner[site], axis=2)
            table_rows = self.first_row[site] + self.is_partner[site] * partner_states
            logit = self.table[table_rows[..., 0]]
            for slot in range(1, table_rows.shape[-1]):
                logit += self.table[table_rows[..., slot]]
            logit += self.fields[site]
            logit[:, 0, GAP_STATE] = -np.inf  # the query has none
            # The largest log-probability plus Gumbel noise is a sample; minus the log of an exponential is such noise.
            exponential = self.rng.standard_exponential(logit.shape, dtype=np.float32)
            logit -= np.log(np.maximum(exponential, np.finfo(np.float32).tiny))
            old = np.take_along_axis(states, column[..., None], axis=2)
            new = np.where((step < N_step)[..., None], logit.argmax(axis=-1)[..., None], old)
            np.put_along_axis(states, column[..., None], new, axis=2)
