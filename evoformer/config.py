"""Configurations as frozen dataclasses, and the builders that read them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from evoformer.blocks.evoformer import ColumnAttention, EvoformerStack
from evoformer.constants import CONTACT_DISTANCE
from evoformer.layers.embedders import InputEmbedder, ProfileEmbedder
from evoformer.trunk import Trunk

Embedder = Literal["alphafold", "profile"]


@dataclass(frozen=True, kw_only=True)
class TrunkConfig:
    """An embedder and a stack of Evoformer blocks; the defaults are AlphaFold's.

    Attributes:
        embedder: "alphafold" is `InputEmbedder`, "profile" is `ProfileEmbedder`.
        c_m: channels of the MSA.
        c_z: channels of the pair representation.
        c_s: channels of the single representation.
        N_block: number of blocks.
        relpos_k: the largest offset along the chain that has a bin of its own.
        c_msa_att: channels of a head of the MSA attentions.
        N_head_msa: heads of the MSA attentions.
        c_opm: channels of the outer product mean.
        c_tri_mul: hidden channels of the triangle multiplications.
        c_tri_att: channels of a head of the triangle attentions.
        N_head_tri: heads of the triangle attentions; 0 leaves triangle attention out.
        n_msa_transition: factor of the hidden channels of the MSA transition.
        n_pair_transition: factor of the hidden channels of the pair transition.
        p_msa: dropout probability of the row attention.
        p_pair: dropout probability of the triangle updates.
        column_attention: "full" or "global".
        opm_first: whether the outer product mean comes first in a block.
        opm_centered: whether the outer product mean centres its columns.

    Raises:
        ValueError: a size or a probability is out of its range.
    """

    embedder: Embedder = "alphafold"
    c_m: int = 256
    c_z: int = 128
    c_s: int = 384
    N_block: int = 48
    relpos_k: int = 32
    c_msa_att: int = 32
    N_head_msa: int = 8
    c_opm: int = 32
    c_tri_mul: int = 128
    c_tri_att: int = 32
    N_head_tri: int = 4
    n_msa_transition: int = 4
    n_pair_transition: int = 4
    p_msa: float = 0.15
    p_pair: float = 0.25
    column_attention: ColumnAttention = "full"
    opm_first: bool = False
    opm_centered: bool = False

    def __post_init__(self) -> None:
        for name, value in ((each.name, getattr(self, each.name)) for each in fields(self) if each.type is int):
            least = 0 if name in ("N_block", "N_head_tri", "relpos_k") else 1
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is {value}, expected a whole number of at least {least}")
        for name, value in (("p_msa", self.p_msa), ("p_pair", self.p_pair)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is {value}, expected 0 to 1")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A trunk with a masked-MSA head and a distogram head.

    Attributes:
        trunk: the trunk.
        distance_edges: Angstrom, ascending: the borders between the distance bins; the defaults are AlphaFold's 63.

    Raises:
        ValueError: the edges do not ascend, or none lies at 8 Angstrom or below.
    """

    trunk: TrunkConfig = field(default_factory=TrunkConfig)
    distance_edges: list[float] = field(default_factory=lambda: [2.3125 + 0.3125 * k for k in range(63)])

    def __post_init__(self) -> None:
        edges = [float(edge) for edge in self.distance_edges]  # plain numbers, which a checkpoint can hold
        if not edges or edges[0] > CONTACT_DISTANCE or sorted(set(edges)) != edges:
            raise ValueError(f"distance_edges must ascend from {CONTACT_DISTANCE} A or below, they are {edges}")
        object.__setattr__(self, "distance_edges", edges)


def build_trunk(config: TrunkConfig) -> Trunk:
    """The trunk that a configuration describes.

    Raises:
        ValueError: the embedder is unknown.
    """
    embedder: InputEmbedder | ProfileEmbedder
    if config.embedder == "alphafold":
        embedder = InputEmbedder(config.c_m, config.c_z, relpos_k=config.relpos_k)
    elif config.embedder == "profile":
        embedder = ProfileEmbedder(config.c_m, config.c_z, relpos_k=config.relpos_k)
    else:
        raise ValueError(f"embedder is {config.embedder!r}, expected one of {', '.join(get_args(Embedder))}")
    evoformer = EvoformerStack(
        config.c_m,
        config.c_z,
        config.N_block,
        config.c_s,
        c_msa_att=config.c_msa_att,
        N_head_msa=config.N_head_msa,
        c_opm=config.c_opm,
        c_tri_mul=config.c_tri_mul,
        c_tri_att=config.c_tri_att,
        N_head_tri=config.N_head_tri,
        n_msa_transition=config.n_msa_transition,
        n_pair_transition=config.n_pair_transition,
        p_msa=config.p_msa,
        p_pair=config.p_pair,
        column_attention=config.column_attention,
        opm_first=config.opm_first,
        opm_centered=config.opm_centered,
    )
    return Trunk(embedder, evoformer)


def model_config(values: Mapping[str, Any]) -> ModelConfig:
    """A configuration from the plain dict that `dataclasses.asdict` makes of it.

    Raises:
        KeyError, TypeError, ValueError: a part is missing, unknown or out of its range.
    """
    values = dict(values)
    return ModelConfig(trunk=TrunkConfig(**values.pop("trunk")), **values)
