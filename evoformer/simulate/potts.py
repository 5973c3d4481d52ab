"""A Potts model on the contacts of a fold: what each site prefers, and which pairs of sites must agree."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int64

from evoformer.simulate.folds import pair_distances
from evoformer.simulate.residues import ALIKE, BACKGROUND, CHARGE, HELIX, HYDROPATHY, STRAND, VOLUME

N_AMINO_ACIDS = len(BACKGROUND)
GAP_STATE = N_AMINO_ACIDS  # states 0 to 19 are the residues in the order of RESIDUES, 20 is the gap
N_STATES = N_AMINO_ACIDS + 1


@dataclass(frozen=True, kw_only=True)
class PottsConfig:
    """How strongly a family is shaped. Energies are in units of the temperature: log-probabilities."""

    site: float = 0.65  # scale of what a site prefers for no visible reason
    site_unevenness: float = (
        0.5  # of that scale over sites, as the deviation of its logarithm: conserved and free sites
    )
    burial: float = 0.35  # hydrophobic inside, polar outside
    secondary: float = 0.2  # preferences for helix and strand
    coupling: float = 0.8  # standard deviation over amino acid pairs, at a close contact of mean strength
    evenness: float = 2.5  # of the strengths over contacts, as a gamma distribution's shape
    silent: float = 0.2  # share of contacts without coupling
    stray: float = 0.04  # couplings between distant sites, a residue
    physics: float = 1.0  # agreement over contacts and families on what pairs well
    alike: float = 0.35  # how far amino acids that are alike couple alike in the random part
    gap_open: float = -3.4  # field of the gap
    gap_extend: float = 4.5  # coupling of a gap with the next


@dataclass(frozen=True)
class Potts:
    """A sequence x has log-probability sum_i fields[i, x_i] + sum_k couplings[k, x_i(k), x_j(k)] + constant."""

    fields: Float32[np.ndarray, "N_res 21"]
    pairs: Int64[np.ndarray, "N_pair 2"]  # sites i(k), j(k)
    couplings: Float32[np.ndarray, "N_pair 21 21"]


def potts_on_fold(
    coordinates: Float[np.ndarray, "N_res 3"], rng: np.random.Generator, config: PottsConfig | None = None
) -> Potts:
    """A random family with the fold whose C-beta coordinates, in Angstrom, are given: a made one or a real chain's."""
    config = config or PottsConfig()
    distances = pair_distances(np.asarray(coordinates, np.float64))
    neighbours = (distances < 10).sum(axis=1) - 1.0
    burial = np.clip((neighbours - neighbours.mean()) / (neighbours.std() + 1e-6), -2, 2)
    pairs, strengths = _coupled_pairs(distances, rng, config)
    contacts = np.zeros((len(pairs), N_STATES, N_STATES))
    contacts[:, :N_AMINO_ACIDS, :N_AMINO_ACIDS] = strengths[:, None, None] * _amino_acid_couplings(
        len(pairs), rng, config
    )
    # Gaps come in runs: a gap invites one at the next site.
    site = np.arange(len(distances) - 1)
    runs = np.zeros((len(site), N_STATES, N_STATES))
    runs[:, GAP_STATE, GAP_STATE] = config.gap_extend
    return Potts(
        fields=_fields(distances, burial, rng, config).astype(np.float32),
        pairs=np.concatenate([pairs, np.stack([site, site + 1], axis=1)]),
        couplings=np.concatenate([contacts, runs]).astype(np.float32),
    )


def secondary_structure(distances: Float[np.ndarray, "N_res N_res"]) -> tuple[np.ndarray, np.ndarray]:
    """Which residues [N_res] look helical and which extended, judged by C-beta distances along the chain."""
    N_res = len(distances)
    helix, strand = np.zeros(N_res, bool), np.zeros(N_res, bool)
    for i in range(N_res - 4):
        if distances[i, i + 3] < 6.6 and distances[i, i + 4] < 7.4:
            helix[i : i + 5] = True
        elif 5.3 < distances[i, i + 2] < 7.3 and 11 < distances[i, i + 4] < 15:
            strand[i : i + 5] = True
    return helix, strand & ~helix


def _fields(
    distances: np.ndarray, burial: np.ndarray, rng: np.random.Generator, config: PottsConfig
) -> Float[np.ndarray, "N_res 21"]:
    N_res = len(distances)
    helix, strand = secondary_structure(distances)
    scale = config.site * np.exp(rng.normal(0, config.site_unevenness, N_res))
    residues = (
        np.log(BACKGROUND)
        + config.burial * np.outer(burial, HYDROPATHY)
        + config.secondary * (np.outer(helix, HELIX) + np.outer(strand, STRAND))
        + scale[:, None] * (rng.normal(size=(N_res, N_AMINO_ACIDS)) @ ALIKE)
    )
    residues -= np.log(np.exp(residues).sum(axis=1, keepdims=True))
    gap = config.gap_open - 0.6 * burial + rng.normal(0, 0.5, N_res)  # rarer inside
    return np.concatenate([residues, gap[:, None]], axis=1)


def _coupled_pairs(
    distances: np.ndarray, rng: np.random.Generator, config: PottsConfig
) -> tuple[Int64[np.ndarray, "N_pair 2"], Float[np.ndarray, " N_pair"]]:
    """The pairs that matter and how much: those in contact, unevenly, and a few strays."""
    i, j = np.triu_indices(len(distances), 2)
    distance = distances[i, j]
    strength = 1 / (1 + np.exp((np.minimum(distance, 20) - 7.5) / 0.6))  # one within 7 Angstrom, none beyond 9
    strength *= np.where(j - i < 3, 0.3, 1.0)  # residues next but one always touch: it says little
    strength *= rng.gamma(config.evenness, 1 / config.evenness, len(i)) * (rng.random(len(i)) >= config.silent)
    is_stray = (rng.random(len(i)) < config.stray * len(distances) / max(1, len(i))) & (distance > 10)
    strength = np.where(is_stray, rng.gamma(2, 0.3, len(i)), strength)
    kept = strength > 0.12  # what is weaker costs time and changes nothing
    return np.stack([i, j], axis=1)[kept], config.coupling * strength[kept]


def _amino_acid_couplings(
    N_pair: int, rng: np.random.Generator, config: PottsConfig
) -> Float[np.ndarray, "N_pair 20 20"]:
    """Who goes with whom at each pair: mean 0 at the background composition, standard deviation 1."""
    weight = rng.normal(config.physics, 0.5 * config.physics, (3, N_pair, 1, 1))
    physics = (
        weight[0] * np.outer(HYDROPATHY, HYDROPATHY)  # like goes with like
        - 0.5 * weight[1] * np.outer(CHARGE, CHARGE)  # opposites attract
        - weight[2] * np.outer(VOLUME, VOLUME)  # large fits small
    )
    noise = rng.normal(size=(N_pair, N_AMINO_ACIDS, N_AMINO_ACIDS))
    noise = config.alike * (ALIKE @ noise @ ALIKE) + (1 - config.alike) * noise
    couplings = 0.35 * physics + noise
    by_first, by_second = couplings @ BACKGROUND, BACKGROUND @ couplings
    couplings += (by_first @ BACKGROUND)[:, None, None] - by_first[:, :, None] - by_second[:, None, :]
    return couplings / couplings.std(axis=(1, 2), keepdims=True)
