"""Embedders: Algorithms 3 and 4, the small one against plain look-ups, and exact relative positions."""

import inspect

import pytest
import torch
from oracles import algorithm_3, profile_embedding, redrawn
from torch import Tensor
from torch.testing import assert_close

from evoformer import InputEmbedder, ProfileEmbedder
from evoformer.layers.embedders import relative_position

N_seq, N_res, c_m, c_z, k = 3, 5, 14, 6, 2
RESIDUE_INDEX = torch.tensor([3, 4, 5, 11, 9])  # a gap, and one out of order


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_input_embedder_is_algorithms_3_and_4() -> None:
    embedder = redrawn(InputEmbedder(c_m, c_z, tf_dim=7, msa_dim=8, relpos_k=k))
    inputs = draw(N_res, 7), RESIDUE_INDEX, draw(N_seq, N_res, 8)
    for ours, expected in zip(embedder(*inputs), algorithm_3(embedder, *inputs), strict=True):
        assert_close(ours, expected)


def letters() -> tuple[Tensor, ...]:
    """Inputs of the small embedder, with the first and the last letter of each alphabet."""
    aatype, msa = torch.tensor([0, 20, 7, 7, 3]), torch.randint(0, 23, (N_seq, N_res))
    msa[0, 0], msa[0, 1] = 0, 22
    return aatype, RESIDUE_INDEX, msa, torch.rand(N_seq).double(), torch.rand(N_res, 22).double()


def test_profile_embedder_is_a_sum_of_look_ups() -> None:
    embedder, inputs = redrawn(ProfileEmbedder(c_m, c_z, relpos_k=k)), letters()
    for ours, expected in zip(embedder(*inputs), profile_embedding(embedder, *inputs), strict=True):
        assert_close(ours, expected)


@pytest.mark.parametrize("batch", [(2,), (2, 4)])
def test_embedders_take_batch_axes(batch: tuple[int, ...]) -> None:
    embedder = redrawn(InputEmbedder(c_m, c_z, tf_dim=7, msa_dim=8, relpos_k=k))
    inputs = draw(*batch, N_res, 7), RESIDUE_INDEX.expand(*batch, -1), draw(*batch, N_seq, N_res, 8)
    for ours, one in zip(embedder(*inputs), embedder(*(x[(0,) * len(batch)] for x in inputs)), strict=True):
        assert_close(ours[(0,) * len(batch)], one)
    small, inputs = redrawn(ProfileEmbedder(c_m, c_z, relpos_k=k)), letters()
    batched = [x.expand(*batch, *x.shape) for x in inputs]
    for ours, one in zip(small(*batched), small(*inputs), strict=True):
        assert_close(ours, one.expand(*batch, *one.shape))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
def test_relative_positions_are_exact_at_large_residue_numbers(dtype: torch.dtype) -> None:
    index = torch.arange(1998, 2003, dtype=dtype)
    bins = relative_position(index, k=32)
    assert not bins.is_floating_point()
    assert bins.tolist() == [[i - j + 32 for j in range(5)] for i in range(5)]


def test_relative_positions_are_cut_off_at_k() -> None:
    assert relative_position(torch.tensor([0, 2, 100]), k=2).tolist() == [[2, 0, 0], [4, 2, 0], [4, 4, 2]]


@pytest.mark.parametrize(
    ("dtype", "autocast"), [(torch.bfloat16, False), (torch.float16, False), (torch.bfloat16, True)]
)
def test_a_low_precision_embedder_tells_residue_2000_from_2001(dtype: torch.dtype, autocast: bool) -> None:
    """In bfloat16 numbers above 256 are rounded, in float16 above 2048; the index must not pass through either."""
    embedder = redrawn(InputEmbedder(c_m, c_z, tf_dim=7, msa_dim=8)).to(dtype)
    small, (aatype, _, msa, gap, profile) = redrawn(ProfileEmbedder(c_m, c_z)).to(dtype), letters()
    target_feat, msa_feat = torch.zeros(N_res, 7, dtype=dtype), torch.zeros(1, N_res, 8, dtype=dtype)
    aatype, profile = 0 * aatype, 0 * profile  # so that only the positions differ
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        for embed in (
            lambda index: embedder(target_feat, index, msa_feat)[1],
            lambda index: small(aatype, index, msa, gap.to(dtype), profile.to(dtype))[1],
        ):
            far, near = embed(torch.arange(2047, 2047 + N_res)), embed(torch.arange(N_res))
            assert torch.equal(far, near)
            assert not torch.equal(far[0, 0], far[0, 1])
            assert torch.equal(embed(torch.arange(2000, 2000 + N_res)), near)


def test_gradients_are_those_of_finite_differences() -> None:
    msa_feat, target_feat = draw(2, 3, 4).requires_grad_(), draw(3, 5).requires_grad_()
    embedder = redrawn(InputEmbedder(2, 3, tf_dim=5, msa_dim=4, relpos_k=k))
    small, (aatype, residue_index, msa, gap, profile) = redrawn(ProfileEmbedder(2, 3, relpos_k=k)), letters()
    inputs = gap.requires_grad_(), profile.requires_grad_()

    def embed(target_feat: Tensor, msa_feat: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        return embedder(target_feat, RESIDUE_INDEX[:3], msa_feat)

    def embed_profile(gap: Tensor, profile: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        return small(aatype, residue_index, msa, gap, profile)

    # gradcheck moves the parameters in place, so both see them.
    assert torch.autograd.gradcheck(embed, (target_feat, msa_feat, *embedder.parameters()), fast_mode=True)
    assert torch.autograd.gradcheck(embed_profile, (*inputs, *small.parameters()), fast_mode=True)


def test_the_features_an_embedder_reads_are_its_arguments_in_order() -> None:
    for embedder in (InputEmbedder, ProfileEmbedder):
        arguments = list(inspect.signature(embedder.forward).parameters)[1:]
        assert list(embedder.features) == arguments
