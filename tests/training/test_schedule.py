"""Optimizer and schedule: what decays, and how the learning rate goes."""

import pytest
import torch
from torch import nn

from evoformer.training.schedule import adamw, warmup_cosine


def test_only_matrices_decay():
    module = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5))
    decayed, free = adamw(module, 1e-3, 0.01).param_groups
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.01, 0.0)
    assert [tuple(p.shape) for p in decayed["params"]] == [(5, 3)]
    assert [tuple(p.shape) for p in free["params"]] == [(5,), (5,), (5,)]


def test_the_learning_rate_rises_then_falls_to_its_floor():
    optimizer = adamw(nn.Linear(2, 2), 0.5, 0.0)
    schedule = warmup_cosine(optimizer, warmup_steps=4, total_steps=24, floor=0.1)
    rates = []
    for _ in range(30):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates[:4] == pytest.approx([0.125, 0.25, 0.375, 0.5])
    assert rates[14] == pytest.approx(0.5 * (0.1 + 0.9 / 2))  # half way down
    assert rates[24:] == pytest.approx([0.05] * 6)
    assert torch.tensor(rates[4:25]).diff().le(0).all()
