"""The arrays of the AlphaFold 2 supplement, each named once. `*batch` stands for any number of leading axes."""

from jaxtyping import Bool, Float, Real
from torch import Tensor

MSA = Float[Tensor, "*batch N_seq N_res c_m"]
Pair = Float[Tensor, "*batch N_res N_res c_z"]
Single = Float[Tensor, "*batch N_res c_s"]
ExtraMSA = Float[Tensor, "*batch N_extra N_res c_e"]

# Masks hold 1 where something is real and 0 where it is padding, in any number type.
MSAMask = Real[Tensor, "*batch N_seq N_res"] | Bool[Tensor, "*batch N_seq N_res"]
ExtraMSAMask = Real[Tensor, "*batch N_extra N_res"] | Bool[Tensor, "*batch N_extra N_res"]
PairMask = Real[Tensor, "*batch N_res N_res"] | Bool[Tensor, "*batch N_res N_res"]


def check_mask(mask: Tensor | None, x: Tensor, name: str, of: str) -> None:
    """Raise a ValueError unless the mask has all axes of x but the channels."""
    if mask is not None and mask.shape != x.shape[:-1]:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}, {of} has {tuple(x.shape)}")


def check_square(z: Tensor) -> None:
    """Raise a ValueError unless z [*, N_res, N_res, c_z] has as many rows as columns."""
    if z.shape[-3] != z.shape[-2]:
        raise ValueError(f"z has {z.shape[-3]} x {z.shape[-2]} residues, expected a square")
