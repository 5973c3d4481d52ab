"""Names and shapes of the weights: OpenFold's, for models of the official size, so that a published checkpoint fits."""

import csv
from pathlib import Path

import pytest
from torch import nn

from evoformer import EvoformerBlock, EvoformerStack, ExtraMSABlock, ExtraMSAStack, InputEmbedder

# OpenFold 2's names without the `_msa_att` level, with the shapes of AlphaFold 2's monomer models.
OPENFOLD_NAMES = Path(__file__).parent.parent / "openfold_names.tsv"


def openfold_names(prefix: str) -> dict[str, tuple[int, ...]]:
    with OPENFOLD_NAMES.open() as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["name"].startswith(prefix)]
    return {row["name"].removeprefix(prefix): tuple(int(n) for n in row["shape"].split(",")) for row in rows}


def names(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


@pytest.mark.parametrize(
    ("block", "prefix", "n_parameters"),
    [
        (EvoformerBlock, "evoformer.blocks.{i}.", 1_829_952),
        (ExtraMSABlock, "extra_msa_stack.blocks.{i}.", 701_312),
    ],
    ids=["main", "extra"],
)
def test_a_block_of_the_official_size_has_openfolds_93_tensors(
    block: type[EvoformerBlock], prefix: str, n_parameters: int
) -> None:
    fresh = block()
    assert names(fresh) == openfold_names(prefix)
    assert len(names(fresh)) == 93
    assert sum(parameter.numel() for parameter in fresh.parameters()) == n_parameters


def test_stacks_number_their_blocks_and_the_main_one_ends_in_a_linear_layer() -> None:
    main, extra = EvoformerStack(256, 128, 2), ExtraMSAStack(64, 128, 2)
    expected = openfold_names("evoformer.")
    assert names(main) == {name.replace("{i}", str(i)): shape for name, shape in expected.items() for i in range(2)}
    expected = openfold_names("extra_msa_stack.")
    assert names(extra) == {name.replace("{i}", str(i)): shape for name, shape in expected.items() for i in range(2)}


def test_the_input_embedder_has_openfolds_names() -> None:
    assert names(InputEmbedder(256, 128)) == openfold_names("input_embedder.")


def test_order_of_the_outer_product_and_centring_change_no_name() -> None:
    assert names(EvoformerBlock(opm_first=True, opm_centered=True)) == names(EvoformerBlock())


def test_weights_go_from_one_block_to_another() -> None:
    small = {"c_m": 6, "c_z": 4, "c_opm": 2, "c_tri_mul": 3, "N_head_msa": 2, "N_head_tri": 2}
    assert (
        str(EvoformerBlock(**small).load_state_dict(EvoformerBlock(**small).state_dict()))
        == "<All keys matched successfully>"
    )
