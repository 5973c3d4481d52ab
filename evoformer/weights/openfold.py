"""OpenFold's names of the trunk's weights: to ours and back.

Ours are OpenFold 2's without the private `_msa_att` level. alphafold-decoded and older OpenFold say `core.` for
`pair_stack.`, and training checkpoints put prefixes before every name.
"""

import re
from collections.abc import Mapping

from evoformer.weights.names import Array, Found, WeightsError, add

# Before a name: of wrappers (DDP, Lightning, torch.compile), and of the trunk in our own model.
PREFIXES = ("module.", "model.", "_orig_mod.", "trunk.")

# Theirs to ours, anywhere in a name, in this order.
LEVELS = (
    (".msa_att_col._msa_att.", ".msa_att_col."),
    (".core.msa_transition.", ".msa_transition."),
    (".core.outer_product_mean.", ".outer_product_mean."),
    (".core.", ".pair_stack."),
)
# Theirs to ours, at the beginning of a name. The last two are the heads of our own model.
BEGINNINGS = (
    ("_msa_att.", ""),  # a column attention by itself
    ("masked_msa.linear.", "aux_heads.masked_msa.linear."),
    ("distogram.linear.", "aux_heads.distogram.linear."),
)
FUSED = re.compile(r"\.linear_ab_([pg])\.")  # AlphaFold-Multimer v3 in OpenFold: rows of a, then rows of b


def our_name(name: str) -> str:
    """Our name of a tensor of OpenFold, alphafold-decoded, or of this library; an unknown name stays."""
    while name.startswith(PREFIXES):
        name = name.split(".", 1)[1]
    for theirs, ours in BEGINNINGS:
        if name.startswith(theirs):
            name = ours + name.removeprefix(theirs)
    name = f".{name}"
    for theirs, ours in LEVELS:
        name = name.replace(theirs, ours)
    return name[1:]


def to_ours(arrays: Mapping[str, Array]) -> dict[str, Found]:
    """Tensors under our names; names of other parts of the model stay.

    Raises:
        WeightsError: two names are the same tensor of ours.
    """
    found: dict[str, Found] = {}
    for source, array in arrays.items():
        name = our_name(source)
        match = FUSED.search(f".{name}")
        if match is None:
            add(found, name, Found(array, source))
            continue
        if array.shape[0] % 2:
            raise WeightsError(f"{source} has {array.shape[0]} channels, which do not halve into a and b")
        width = array.shape[0] // 2
        for letter, part in (("a", array[:width]), ("b", array[width:])):
            fused = f"linear_ab_{match[1]}."
            add(found, name.replace(fused, f"linear_{letter}_{match[1]}."), Found(part, source))
    return found


def from_ours(named: Mapping[str, Array]) -> dict[str, Array]:
    """Our tensors under OpenFold 2's current names."""
    return {_their_name(name, named): array for name, array in named.items()}


def _their_name(name: str, named: Mapping[str, Array]) -> str:
    """OpenFold's name; only the full column attention has the level that we leave out."""
    start, level, rest = name.rpartition("msa_att_col.")
    if level and f"{start}{level}mha.linear_q.weight" in named:
        return f"{start}{level}_msa_att.{rest}"
    return name
