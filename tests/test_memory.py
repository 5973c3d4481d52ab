"""The estimate of memory: what it counts, and that a process needs as much."""

import pytest
from benchmark_cases import Job
from benchmark_measure import peak_memory

from evoformer import (
    EvoformerBlock,
    EvoformerStack,
    Execution,
    ExtraMSAStack,
    MSATransition,
    TrunkConfig,
    build_trunk,
    estimate_memory,
    set_execution,
)

N_seq, N_res, c_m, c_z = 9, 11, 16, 12
SMALL = {"c_msa_att": 4, "N_head_msa": 2, "c_opm": 3, "c_tri_mul": 5, "c_tri_att": 2, "N_head_tri": 3}
INPUTS = 4 * (N_seq * N_res * c_m + N_res * N_res * c_z)


def small_stack(N_block):
    return EvoformerStack(c_m, c_z, N_block, c_s=8, **SMALL)


def parameters(module):
    return sum(p.nbytes for p in module.parameters())


def test_parameters_inputs_and_results_are_counted():
    block = EvoformerBlock(c_m, c_z, **SMALL)
    assert estimate_memory(block, N_seq, N_res) > parameters(block) + 2 * INPUTS


def test_training_counts_all_gradients():
    block = EvoformerBlock(c_m, c_z, **SMALL)
    assert estimate_memory(block, N_seq, N_res, training=True) > 2 * parameters(block) + 3 * INPUTS


def test_without_training_blocks_cost_their_parameters():
    few, many = small_stack(2), small_stack(5)
    difference = estimate_memory(many, N_seq, N_res) - estimate_memory(few, N_seq, N_res)
    assert difference == parameters(many) - parameters(few)


def test_recomputing_blocks_keeps_an_m_and_a_z_of_each():
    few, many = small_stack(4), small_stack(7)
    for stack in (few, many):
        set_execution(stack, Execution(recompute="block"))
    N_res = 40  # so that an m and a z are more than a block's weights, and the peak comes before their gradients
    difference = estimate_memory(many, N_seq, N_res, training=True) - estimate_memory(few, N_seq, N_res, training=True)
    assert difference == 3 * 4 * (N_seq * N_res * c_m + N_res * N_res * c_z) + parameters(many) - parameters(few)


@pytest.mark.parametrize("kernel", ["reference", "streamed"])
def test_recomputing_needs_less(kernel):
    stack = small_stack(3)
    estimates = []
    for recompute in ("none", "layer", "block"):
        set_execution(stack, Execution(kernel=kernel, recompute=recompute))
        estimates.append(estimate_memory(stack, N_seq, N_res, training=True))
    assert estimates[0] > max(estimates[1:])


def test_a_trunk_is_its_stack_and_the_parameters_of_its_embedder():
    trunk = build_trunk(TrunkConfig(c_m=c_m, c_z=c_z, N_block=2))
    embedder = parameters(trunk) - parameters(trunk.evoformer)
    assert estimate_memory(trunk, N_seq, N_res) == estimate_memory(trunk.evoformer, N_seq, N_res) + embedder


def test_an_extra_msa_stack_is_estimated_too():
    assert estimate_memory(ExtraMSAStack(c_m, c_z, 2), N_seq, N_res, training=True) > 0


def test_nothing_runs():
    """A pass of this size would take minutes and 60 GB."""
    assert estimate_memory(EvoformerBlock(), 4096, 4096) > 2**35


def test_another_module_is_an_error():
    with pytest.raises(ValueError, match="trunk is MSATransition, expected a Trunk"):
        estimate_memory(MSATransition(c_m), N_seq, N_res)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("N_seq", "N_res", "direction", "kernel", "recompute"),
    [
        (128, 256, "forward+backward", "streamed", "none"),
        (128, 256, "forward+backward", "streamed", "layer"),
        (128, 256, "forward+backward", "streamed", "block"),
        (128, 384, "forward", "streamed", "none"),
        (64, 256, "forward+backward", "reference", "none"),
    ],
)
def test_a_process_needs_what_is_estimated(N_seq, N_res, direction, kernel, recompute):
    job = Job(op="block", N_seq=N_seq, N_res=N_res, direction=direction, kernel=kernel, recompute=recompute)
    block = EvoformerBlock().eval()
    set_execution(block, job.execution())
    training = direction == "forward+backward"
    inputs = 4 * (N_seq * N_res * 256 + N_res * N_res * 128)
    # What is measured begins when inputs, weights and the gradient of the output exist.
    beside = parameters(block) + inputs * (2 if training else 1)
    estimate = estimate_memory(block, N_seq, N_res, training=training)
    assert estimate == pytest.approx(beside + 2**20 * peak_memory(job), rel=0.2)
