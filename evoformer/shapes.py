"""The arrays of the AlphaFold 2 supplement, each named once. `*batch` stands for any number of leading axes."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

MSA = Float[Tensor, "*batch N_seq N_res c_m"]
Pair = Float[Tensor, "*batch N_res N_res c_z"]
Single = Float[Tensor, "*batch N_res c_s"]
ExtraMSA = Float[Tensor, "*batch N_extra N_res c_e"]

# Masks hold 1 where something is real and 0 where it is padding, in any number type.
MSAMask = Float[Tensor, "*batch N_seq N_res"] | Int[Tensor, "*batch N_seq N_res"] | Bool[Tensor, "*batch N_seq N_res"]
ExtraMSAMask = (
    Float[Tensor, "*batch N_extra N_res"] | Int[Tensor, "*batch N_extra N_res"] | Bool[Tensor, "*batch N_extra N_res"]
)
PairMask = Float[Tensor, "*batch N_res N_res"] | Int[Tensor, "*batch N_res N_res"] | Bool[Tensor, "*batch N_res N_res"]
