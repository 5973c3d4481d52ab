"""One seed to independent random streams, one a step, without any global state."""

import hashlib
import operator
from collections.abc import Sequence
from typing import SupportsIndex

import numpy as np

Seed = SupportsIndex | Sequence[SupportsIndex]  # Python's, numpy's and torch's ints


def generator_for(seed: Seed, step: str) -> np.random.Generator:
    """The random stream of one named step under one seed.

    Streams go by the step's name, so that adding, dropping or reordering steps leaves the draws of the others as they
    were. Seed and name are hashed together: (1, 0) and 1 differ, as do (1, 23) and (12, 3); 1 and (1,) are the same.

    Args:
        seed: a non-negative int of any size, or several, such as (seed, epoch, rank, index).
        step: the step's name.

    Raises:
        ValueError: the seed is not made of non-negative ints.
    """
    parts = seed if isinstance(seed, Sequence) else (seed,)
    try:
        numbers = [operator.index(part) for part in parts]
    except TypeError:
        numbers = []
    if not numbers or min(numbers) < 0:
        raise ValueError(f"a seed is a non-negative int or a sequence of them, got {seed!r}")
    digest = hashlib.sha256(repr((numbers, step)).encode()).digest()
    return np.random.default_rng(np.random.SeedSequence(np.frombuffer(digest, "<u4")))
