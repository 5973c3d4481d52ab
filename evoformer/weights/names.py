"""What the tables of names share.

"Our name" of a tensor is its name in a whole model: `evoformer.blocks.{i}.…`, `extra_msa_stack.blocks.{i}.…`,
`input_embedder.…` and so on, OpenFold's current names without the private `_msa_att` level. A source that holds only a
block or a layer gives names that begin there, such as `pair_stack.tri_mul_in.linear_g.weight`.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

import numpy as np
from torch import Tensor

from evoformer.errors import InputError

Array = np.ndarray | Tensor
Layout = Literal["alphafold", "alphafold_fused", "openfold", "decoded"]


class WeightsError(InputError):
    """Weights cannot be read, written, or do not fit a module."""


class Found(NamedTuple):
    """A tensor of a source under our name.

    Attributes:
        array: the values in our layout, as a view of the source where possible.
        source: the name in the source.
        heads: the number of attention heads, where the source's shape says it.
    """

    array: Array
    source: str
    heads: int | None = None


def add(found: dict[str, Found], name: str, item: Found) -> None:
    """Put a tensor under our name.

    Raises:
        WeightsError: the name is taken.
    """
    if name in found:
        raise WeightsError(f"{found[name].source} and {item.source} are both {name}: leave one of them out")
    found[name] = item


def check_layout(layout: str) -> None:
    """See that a layout is known.

    Raises:
        WeightsError: it is not.
    """
    if layout not in get_args(Layout):
        raise WeightsError(f"layout is {layout!r}, expected one of {', '.join(get_args(Layout))}")


def listed(names: Iterable[str], most: int = 8) -> str:
    """The first names of a list in words, and how many more there are."""
    names = list(names)
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join(names[:most] + more)
