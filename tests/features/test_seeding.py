"""Seeds: what gives the same stream and what must not."""

import numpy as np
import pytest
import torch

from evoformer.features.seeding import generator_for


def draw(seed, step="mask"):
    return generator_for(seed, step).integers(2**60)


def test_the_same_seed_and_step_give_the_same_stream():
    assert draw((3, 1, 0, 7)) == draw([3, 1, 0, 7]) == draw((np.int64(3), 1, 0, 7))
    assert draw(3) == draw((3,)) == draw(np.int32(3)) == draw(torch.tensor(3))
    assert draw(1) == 1045652381031819332  # on any machine, in any version


def test_seeds_and_steps_that_differ_give_other_streams():
    seeds = [0, 1, (1, 0), (0, 1), (1, 0, 0), (1, 23), (12, 3), 2**32, (0, 1, 0), 2**64 + 1, 2**200]
    assert len({draw(seed) for seed in seeds}) == len(seeds)
    assert draw(0, "mask") != draw(0, "sample_rows")


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("seed", [-1, (0, -3), 1.5, "7", (), None, (1, None)])
def test_anything_but_non_negative_ints_is_refused(seed):
    with pytest.raises(ValueError, match="a seed is a non-negative int"):
        draw(seed)
