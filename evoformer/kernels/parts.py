"""What the ops read besides their inputs: the modules that a layer is made of.

The plain kernel calls them, so hooks, adapters and parametrisations work; a kernel that reads the bare parameters
refuses what is not a plain linear layer or LayerNorm.
"""

from typing import NamedTuple

from torch import nn


class AttentionParts(NamedTuple):
    """Parts of multi-head attention; `g` is None where nothing is gated."""

    norm: nn.Module
    q: nn.Module
    k: nn.Module
    v: nn.Module
    g: nn.Module | None
    o: nn.Module
    N_head: int


class OuterProductParts(NamedTuple):
    """Parts of the outer product mean."""

    norm: nn.Module
    a: nn.Module
    b: nn.Module
    out: nn.Linear
    eps: float
    centered: bool


class TriangleParts(NamedTuple):
    """Parts of a triangle multiplication."""

    norm_in: nn.Module
    a_p: nn.Module
    a_g: nn.Module
    b_p: nn.Module
    b_g: nn.Module
    norm_out: nn.Module
    z: nn.Module
    g: nn.Module
    outgoing: bool


class TransitionParts(NamedTuple):
    """Parts of a transition."""

    norm: nn.Module
    linear_1: nn.Module
    linear_2: nn.Module
