"""Random compact folds: helices and strands packed side by side and joined by loops, as C-beta coordinates."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Float32

from evoformer.constants import CONTACT_DISTANCE, MIN_SEPARATION

HELIX_RISE, HELIX_TURN, HELIX_RADIUS, HELIX_CB_RADIUS = 1.5, np.deg2rad(100), 2.3, 3.3  # Angstrom, radians, a residue
STRAND_RISE, STRAND_PLEAT, STRAND_CB_PLEAT = 3.3, 0.9, 2.3  # Angstrom
HELIX_SPACING, STRAND_SPACING, LAYER_SPACING = 9.5, 4.8, 10.0  # Angstrom between axes
SHEET_TWIST = np.deg2rad(-20)  # a strand
CB_LENGTH = 1.5  # Angstrom from C-alpha to C-beta


class Element(NamedTuple):
    """A helix or strand whose axis is parallel to z and passes through (x, y), in Angstrom."""

    kind: Literal["helix", "strand"]
    x: float
    y: float


def random_fold(N_res: int, rng: np.random.Generator) -> Float32[np.ndarray, "N_res 3"]:
    """C-beta coordinates in Angstrom of a random helix bundle, beta sheet or sandwich, or alpha-beta fold.

    A crude picture of a protein (nothing is minimised, and loops may pass close to each other), with the contact
    density and the patterns of real ones: every fourth residue along a helix, ladders between strands.
    """
    if N_res < 1:
        raise ValueError(f"N_res is {N_res}, it must be at least 1")
    architectures = (_helix_bundle, _beta_sheets, _alpha_beta)
    elements = architectures[rng.choice(3, p=[0.3, 0.25, 0.45])](rng)
    backbone, sidechain = np.empty((0, 3)), np.empty((0, 3))
    upwards = 1
    while len(backbone) < N_res:
        element_ca, element_cb = _build(next(elements), upwards, rng)
        if len(backbone):
            loop_ca, loop_cb = _loop(backbone, element_ca[0], rng)
            element_ca, element_cb = np.vstack([loop_ca, element_ca]), np.vstack([loop_cb, element_cb])
        backbone, sidechain = np.vstack([backbone, element_ca]), np.vstack([sidechain, element_cb])
        upwards *= -1 if rng.random() < 0.92 else 1  # mostly antiparallel to the one before
    return sidechain[:N_res].astype(np.float32)


def pair_distances(coordinates: Float[np.ndarray, "N_res 3"]) -> Float[np.ndarray, "N_res N_res"]:
    """Euclidean distances between all points, in the unit of the coordinates."""
    return np.linalg.norm(coordinates[:, None] - coordinates[None], axis=-1)


def contact_overlap(
    distances: Float[np.ndarray, "N_res N_res"],
    others: Float[np.ndarray, "N_other N_other"],
    *,
    min_separation: int = MIN_SEPARATION,
    cutoff: float = CONTACT_DISTANCE,
) -> float:
    """How alike two folds are: the contacts that both have over those that either has, between 0 and 1.

    Residues are matched by number; those that only the longer chain has are left out. 0 where neither has a contact.
    """
    N_common = min(len(distances), len(others))
    i, j = np.triu_indices(N_common, min_separation)
    one, other = distances[i, j] < cutoff, others[i, j] < cutoff
    either = (one | other).sum()
    return float((one & other).sum() / either) if either else 0.0


def _helix_bundle(rng: np.random.Generator) -> Iterator[Element]:
    """Helices on a square lattice, each in a free cell close to the last and to the middle."""
    used = [(0, 0)]
    while True:
        yield Element("helix", HELIX_SPACING * used[-1][0], HELIX_SPACING * used[-1][1])
        steps = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
        free = sorted({(x + a, y + b) for x, y in used for a, b in steps} - set(used))
        x, y = used[-1]
        cost = [a**2 + b**2 + 2 * max(abs(a - x), abs(b - y)) + rng.random() for a, b in free]
        used.append(free[int(np.argmin(cost))])


def _sheet(rng: np.random.Generator, layer: float) -> Iterator[Element]:
    """Strands of one sheet, each added at its left or right edge."""
    left, right = 0, 0
    yield Element("strand", 0.0, layer)
    while True:
        if rng.random() < 0.6:
            right += 1
            yield Element("strand", STRAND_SPACING * right, layer)
        else:
            left -= 1
            yield Element("strand", STRAND_SPACING * left, layer)


def _beta_sheets(rng: np.random.Generator) -> Iterator[Element]:
    """One sheet, and from its fifth strand on a second one on top: a sandwich."""
    bottom, top = _sheet(rng, 0.0), _sheet(rng, LAYER_SPACING)
    for _ in range(4):
        yield next(bottom)
    while True:
        yield next(top if rng.random() < 0.5 else bottom)


def _alpha_beta(rng: np.random.Generator) -> Iterator[Element]:
    """Strands of a sheet in turn with helices, each over or under the sheet near the last strand."""
    used: set[tuple[int, int]] = set()
    for strand in _sheet(rng, 0.0):
        yield strand
        nearest = round(strand.x / LAYER_SPACING)
        free = [(k, side) for k in range(nearest - 9, nearest + 10) for side in (1, -1) if (k, side) not in used]
        cost = [abs(k - nearest) + (0.7 if side < 0 else 0.0) + rng.random() for k, side in free]
        k, side = free[int(np.argmin(cost))]
        used.add((k, side))
        yield Element("helix", LAYER_SPACING * k, LAYER_SPACING * side)


def _build(element: Element, upwards: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """C-alpha and C-beta coordinates [n, 3] of an element of random length, running up or down z."""
    if element.kind == "helix":
        n = int(rng.integers(9, 19))
        along = upwards * HELIX_RISE * (np.arange(n) - (n - 1) / 2)
        angle = HELIX_TURN * np.arange(n) + rng.uniform(0, 2 * np.pi)
        ca = np.stack([HELIX_RADIUS * np.cos(angle), HELIX_RADIUS * np.sin(angle), along], axis=1)
        angle = angle + 0.3  # the C-beta is ahead of its C-alpha, and points back along the axis
        back = along - upwards * 0.6
        cb = np.stack([HELIX_CB_RADIUS * np.cos(angle), HELIX_CB_RADIUS * np.sin(angle), back], axis=1)
        turn = np.eye(3)
    else:
        n = int(rng.integers(4, 9))
        along = upwards * STRAND_RISE * (np.arange(n) - (n - 1) / 2)
        side = (-1.0) ** (np.arange(n) + rng.integers(2))
        ca = np.stack([np.zeros(n), STRAND_PLEAT * side, along], axis=1)
        cb = np.stack([np.zeros(n), STRAND_CB_PLEAT * side, along], axis=1)
        twist = SHEET_TWIST * element.x / STRAND_SPACING  # neighbouring strands are turned against each other
        turn = np.array(
            [[1, 0, 0], [0, np.cos(twist), -np.sin(twist)], [0, np.sin(twist), np.cos(twist)]],
        )
    place = np.array([element.x, element.y, rng.normal(0, 1.5)]) + rng.normal(0, 0.3, 3)
    return ca @ turn.T + place, cb @ turn.T + place


def _loop(backbone: np.ndarray, end: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """C-alpha and C-beta coordinates [n, 3] of a curve from the last residue to `end` that bulges outwards."""
    start, middle = backbone[-1], backbone.mean(axis=0)
    n = max(2, int(np.ceil(np.linalg.norm(end - start) / 3.1)) - 1) + int(rng.integers(0, 3))
    outwards = (start + end) / 2 - middle
    outwards[2] += 6 if start[2] > middle[2] else -6
    bulge = (start + end) / 2 + 1.2 * n * outwards / np.linalg.norm(outwards)
    t = np.linspace(0, 1, n + 2)[1:-1, None]
    ca = (1 - t) ** 2 * start + 2 * t * (1 - t) * bulge + t**2 * end + rng.normal(0, 0.4, (n, 3))
    direction = ca - middle + rng.normal(0, 3, (n, 3))
    return ca, ca + CB_LENGTH * direction / np.linalg.norm(direction, axis=1, keepdims=True)
