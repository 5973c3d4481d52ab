"""What the ops read besides their inputs: the modules that a layer is made of.

The plain kernel calls them, so hooks, adapters and parametrisations work; a kernel that reads the bare parameters
refuses what is not a plain linear layer or LayerNorm.
"""

from typing import NamedTuple

from torch import nn

Norm = nn.LayerNorm | nn.Identity  # Identity where the input is normalised already


class AttentionParts(NamedTuple):
    """Parts of multi-head attention; `g` is None where nothing is gated."""

    norm: Norm
    q: nn.Linear
    k: nn.Linear
    v: nn.Linear
    g: nn.Linear | None
    o: nn.Linear
    N_head: int


class OuterProductParts(NamedTuple):
    """Parts of the outer product mean."""

    norm: Norm
    a: nn.Linear
    b: nn.Linear
    out: nn.Linear
    eps: float
    centered: bool


class TriangleParts(NamedTuple):
    """Parts of a triangle multiplication."""

    norm_in: Norm
    a_p: nn.Linear
    a_g: nn.Linear
    b_p: nn.Linear
    b_g: nn.Linear
    norm_out: Norm
    z: nn.Linear
    g: nn.Linear
    outgoing: bool


class TransitionParts(NamedTuple):
    """Parts of a transition."""

    norm: Norm
    linear_1: nn.Linear
    linear_2: nn.Linear
