"""What the streamed kernels never hold: noise cannot move these.

Bytes kept for the backward pass, the largest tensor that is made on the way, and the peak of a new process.
"""

import functools

import pytest
import torch
from benchmark_cases import Job
from benchmark_measure import peak_memory
from oracles import redrawn
from torch.profiler import ProfilerActivity, profile

from evoformer import (
    Execution,
    MSAColumnAttention,
    MSAColumnGlobalAttention,
    MSARowAttentionWithPairBias,
    MSATransition,
    OuterProductMean,
    TriangleAttention,
    TriangleMultiplication,
    set_execution,
)

N_seq, N_res, c_m, c_z, c, N_head = 20, 96, 7, 10, 5, 9
M, Z = N_seq * N_res, N_res * N_res
LAYERS = {
    # how it is built, what it takes, and the numbers it may keep beyond inputs and parameters
    "row": (lambda: MSARowAttentionWithPairBias(c_m, c_z, c, N_head), "mz", 4 * M * N_head * c + Z * N_head),
    "column": (lambda: MSAColumnAttention(c_m, c, N_head), "m", 4 * M * N_head * c),
    "global column": (lambda: MSAColumnGlobalAttention(c_m, c, N_head), "m", 0),
    "transition": (lambda: MSATransition(c_m, 4), "m", 4 * M * c_m),
    "outer product mean": (lambda: OuterProductMean(c_m, c_z, c), "m", 2 * M * c),
    "outgoing": (lambda: TriangleMultiplication(c_z, "outgoing", c), "z", 3 * Z * c),
    "starting node": (lambda: TriangleAttention(c_z, "starting_node", c, N_head), "z", (4 * Z * c + Z) * N_head),
    "ending node": (lambda: TriangleAttention(c_z, "ending_node", c, N_head), "z", (4 * Z * c + Z) * N_head),
}
NOT_KEPT_BY_RECOMPUTING = {"row": Z * N_head, "starting node": Z * N_head, "ending node": Z * N_head}  # the pair bias


def built(name, **execution):
    build, takes, _ = LAYERS[name]
    layer = redrawn(build()).float()
    set_execution(layer, Execution(**execution))
    shapes = {"m": (N_seq, N_res, c_m), "z": (N_res, N_res, c_z)}
    return layer, [torch.randn(shapes[kind], requires_grad=True) for kind in takes]


def kept(layer, inputs):
    """Numbers that autograd keeps, beyond the inputs and what is as small as the parameters."""
    storages = {}

    def note(x):
        storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // 4
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        result = layer(*inputs)
    given = {x.untyped_storage().data_ptr() for x in inputs}
    small = 3 * sum(p.numel() for p in layer.parameters())
    numbers = sum(size for place, size in storages.items() if place not in given and size > small)
    del result
    return numbers


@pytest.mark.parametrize("name", LAYERS)
def test_no_more_is_kept_than_the_projections(name):
    assert kept(*built(name, kernel="streamed")) == LAYERS[name][2]


def test_gates_that_are_no_dearer_to_keep_than_to_make_again_are_kept_beside_the_gated_outputs():
    """Along an axis that is no longer than the channels are many."""
    layer = redrawn(MSAColumnAttention(N_seq, c, N_head)).float()
    set_execution(layer, Execution(kernel="streamed"))
    assert kept(layer, [torch.randn(N_seq, N_res, N_seq, requires_grad=True)]) == 5 * M * N_head * c


@pytest.mark.parametrize("name", LAYERS)
def test_recomputing_keeps_only_the_inputs(name):
    assert kept(*built(name, kernel="streamed", recompute="layer")) == NOT_KEPT_BY_RECOMPUTING.get(name, 0)


@pytest.mark.parametrize("name", ["row", "column", "outer product mean", "starting node"])
def test_the_reference_keeps_more(name):
    """Or the two tests before this one could not fail."""
    assert kept(*built(name, kernel="reference")) > 2 * LAYERS[name][2]


def largest_allocation(layer, inputs):
    """The most numbers that one operator allocates, forward and backward."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        layer(*inputs).sum().backward()
    return max(event.self_cpu_memory_usage for event in watched.events()) // 4


FORBIDDEN = {
    "row": N_seq * N_head * N_res * N_res,
    "column": N_res * N_head * N_seq * N_seq,
    "outer product mean": N_res * N_res * c * c,
    "starting node": N_res * N_head * N_res * N_res,
    "ending node": N_res * N_head * N_res * N_res,
}


@pytest.mark.parametrize("name", FORBIDDEN)
@pytest.mark.parametrize("recompute", ["none", "layer"])
def test_logits_and_outer_products_never_exist_at_once(name, recompute, monkeypatch):
    monkeypatch.setattr("evoformer.kernels.streaming.CHUNK_TOKENS", 4 * N_res)
    monkeypatch.setattr("evoformer.kernels.streamed_outer_product_mean.TILE", 16)
    layer, inputs = built(name, kernel="streamed", recompute=recompute)
    allowed = max(LAYERS[name][2], M * c_m, Z * c_z)
    assert largest_allocation(layer, inputs) <= allowed
    assert allowed < FORBIDDEN[name] or name == "column"


def test_what_the_projection_makes_of_few_sequences_never_exists_at_once(monkeypatch):
    N_seq, N_res, c_m, c_z, c = 8, 24, 7, 3, 20
    monkeypatch.setattr("evoformer.kernels.streaming.CHUNK_TOKENS", N_seq * c)
    layer = redrawn(OuterProductMean(c_m, c_z, c)).float()
    set_execution(layer, Execution(kernel="streamed"))
    allowed = 2 * N_seq * N_res * c
    assert largest_allocation(layer, [torch.randn(N_seq, N_res, c_m, requires_grad=True)]) <= allowed
    assert allowed < N_res * N_seq * c * c_z


@pytest.mark.parametrize("name", FORBIDDEN)
def test_the_reference_makes_them(name):
    """Or the test before this one could not fail."""
    assert largest_allocation(*built(name, kernel="reference")) >= FORBIDDEN[name]


peak_of = functools.partial(Job, kernel="streamed", direction="forward+backward")
PEAKS = {  # MiB beyond inputs and weights
    "row attention": (peak_of(op="msa_att_row", N_seq=128, N_res=512), 550),
    "row attention, recomputing": (peak_of(op="msa_att_row", N_seq=128, N_res=512, recompute="layer"), 400),
    "extra-MSA row attention": (peak_of(op="extra_msa_att_row", N_seq=1024, N_res=128), 220),
    "block": (peak_of(op="block", N_seq=128, N_res=256), 1450),
    "block, recomputing": (peak_of(op="block", N_seq=128, N_res=256, recompute="layer"), 1100),
    "block, forward": (Job(op="block", N_seq=128, N_res=256, kernel="streamed", in_place=True), 220),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PEAKS)
def test_a_new_process_stays_below_its_peak(name):
    job, limit = PEAKS[name]
    assert peak_memory(job) <= limit
