"""Triangle updates: which edges meet, what the other direction is, and names that are none of the two."""

import pytest
import torch
from oracles import redrawn
from torch import Tensor, nn
from torch.testing import assert_close

from evoformer import TriangleAttention, TriangleMultiplication

N_res, c_z, c, N_head = 5, 6, 4, 2


def moved_by(layer: nn.Module, edge: tuple[int, int]) -> set[tuple[int, int]]:
    """The edges whose update changes when one edge of z does."""
    z = torch.randn(N_res, N_res, c_z, dtype=torch.float64)
    other = z.clone()
    other[edge] = torch.randn(c_z, dtype=torch.float64)
    return {(i, j) for i, j in ((layer(other) - layer(z)).abs().amax(-1) > 1e-9).nonzero().tolist()}


def row(i: int) -> set[tuple[int, int]]:
    return {(i, j) for j in range(N_res)}


def column(j: int) -> set[tuple[int, int]]:
    return {(i, j) for i in range(N_res)}


def test_outgoing_edges_meet_at_their_ends_and_incoming_at_their_starts() -> None:
    """z[1, 3] is an edge i k of the row 1 and an edge j k of the column 1; incoming, k i and k j of 3."""
    assert moved_by(redrawn(TriangleMultiplication(c_z, "outgoing", c)), (1, 3)) == row(1) | column(1) | {(1, 3)}
    assert moved_by(redrawn(TriangleMultiplication(c_z, "incoming", c)), (1, 3)) == row(3) | column(3) | {(1, 3)}


def test_the_starting_node_attends_along_rows_and_the_ending_node_along_columns() -> None:
    """As a key, z[1, 3] moves its row (its column); as a bias it moves the edges that end at 1 (that start at 3)."""
    assert moved_by(redrawn(TriangleAttention(c_z, "starting_node", c, N_head)), (1, 3)) == row(1) | column(1)
    assert moved_by(redrawn(TriangleAttention(c_z, "ending_node", c, N_head)), (1, 3)) == column(3) | row(3)


def test_the_ending_node_is_the_starting_node_of_the_transposed_pairs() -> None:
    start = redrawn(TriangleAttention(c_z, "starting_node", c, N_head))
    end = redrawn(TriangleAttention(c_z, "ending_node", c, N_head))
    end.load_state_dict(start.state_dict())
    z, mask = torch.randn(2, N_res, N_res, c_z, dtype=torch.float64), torch.rand(2, N_res, N_res) > 0.4
    transposed = start(z.transpose(1, 2), mask.transpose(1, 2)).transpose(1, 2)
    assert_close(end(z, mask), transposed)
    assert not torch.allclose(start(z, mask), transposed)


@pytest.mark.usefixtures("without_shape_checks")
def test_there_are_two_kinds_of_each() -> None:
    with pytest.raises(ValueError, match="mult_type is 'sideways', expected one of outgoing, incoming"):
        TriangleMultiplication(c_z, "sideways", c)
    with pytest.raises(ValueError, match="node_type is 'middle', expected one of starting_node, ending_node"):
        TriangleAttention(c_z, "middle", c, N_head)


@pytest.mark.parametrize("shape", [(4, N_res, c_z), (1, N_res, c_z), (N_res, 1, c_z)])
@pytest.mark.parametrize(
    "layer",
    [
        TriangleMultiplication(c_z, "outgoing", c),
        TriangleMultiplication(c_z, "incoming", c),
        TriangleAttention(c_z, "starting_node", c, N_head),
        TriangleAttention(c_z, "ending_node", c, N_head),
    ],
    ids=["outgoing", "incoming", "starting", "ending"],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_pairs_of_two_different_lengths_are_an_error(layer: nn.Module, shape: tuple[int, ...]) -> None:
    z: Tensor = torch.randn(shape)
    with pytest.raises(ValueError, match=f"{shape[0]}.*{shape[1]}|{shape[1]}.*{shape[0]}"):
        layer(z)
