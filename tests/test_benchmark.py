"""The benchmark: what it counts as the limit, and that its files hold what was asked for."""

import csv
import sys

import benchmark
import benchmark_measure
import pytest
import torch
from benchmark_cases import CASES, Job, Workload
from benchmark_measure import Timing, allocator, peak_memory, time_side_by_side
from benchmark_results import Results
from torch.utils.flop_counter import FlopCounterMode

from evoformer.errors import InputError
from evoformer.kernels import KERNELS, Kernel, KernelError

N_SEQ, N_RES = 3, 5
SIZES = [("pair_transition", "", 3), ("pair_transition", "", 4), ("msa_att_row", 2, 3), ("msa_att_row", 3, 4)]
PLANNED = {  # ms of a forward pass at 97 GFLOP/s
    ("msa_att_row", 128, 256): 311,
    ("msa_att_col", 128, 256): 266,
    ("extra_msa_att_row", 1024, 128): 100,
    ("extra_msa_att_col", 1024, 128): 25,
    ("outer_product_mean", 128, 256): 365,
    ("tri_mul_out", None, 256): 177,
    ("tri_mul_in", None, 256): 177,
    ("tri_att_start", None, 256): 200,
    ("tri_att_end", None, 256): 200,
    ("block", 128, 128): 737,
    ("block", 128, 256): 2228,
}


@pytest.mark.parametrize(("op", "N_seq", "N_res"), PLANNED)
def test_limits_are_those_of_the_plan(op, N_seq, N_res):
    flops = Job(op=op, N_seq=N_seq, N_res=N_res).flops()
    assert round(flops / 97e9 * 1e3) == PLANNED[op, N_seq, N_res]


@pytest.mark.parametrize("name", [name for name in CASES if name != "stack"])
def test_flops_are_what_the_reference_multiplies(name):
    case = CASES[name]
    N_seq = None if case.inputs == "z" else N_SEQ
    # The reference also counts the sequences of each pair of columns, and projects a query at every position before
    # the global one is taken. The limit leaves both out.
    beyond = 0
    if name in ("outer_product_mean", "block", "extra_block"):
        beyond += 2 * N_SEQ * N_RES**2
    if name in ("extra_msa_att_col", "extra_block"):
        beyond += 2 * (N_SEQ - 1) * N_RES * 64 * 64
    job = Job(op=name, N_seq=N_seq, N_res=N_RES)
    assert multiplied(job) == job.flops() + beyond


@pytest.mark.parametrize("name", ["msa_att_row", "tri_mul_in", "pair_transition"])
def test_a_backward_pass_multiplies_twice_as_much(name):
    job = Job(op=name, N_seq=N_SEQ, N_res=N_RES, direction="forward+backward")
    assert multiplied(job) == job.flops()


def multiplied(job):
    workload = Workload(job)
    workload.use(job.execution())
    with FlopCounterMode(display=False) as counter:
        workload.run()
    return counter.get_total_flops()


def test_no_weight_is_left_at_zero():
    for name, case in CASES.items():
        if name != "stack":
            module = Workload(Job(op=name, N_seq=1, N_res=1)).module
            assert all(weight.abs().sum() > 0 for weight in module.parameters()), case


def test_ratios_are_of_timings_beside_their_own_gemm():
    slow_for_a_while = Timing(seconds=[2.0, 2.0, 8.0], limits=[1.0, 1.0, 4.0], ran="")
    twice_as_fast = Timing(seconds=[1.0, 4.0, 1.0], limits=[1.0, 4.0, 1.0], ran="")
    assert slow_for_a_while.over_limit == 2
    assert twice_as_fast.speed_over(slow_for_a_while) == 2
    assert slow_for_a_while.spread == 3


@pytest.fixture
def run(monkeypatch):
    """The script on some arguments, in this process and with short timings."""
    monkeypatch.setitem(benchmark_measure.GEMM_SIZE, "cpu", 64)
    monkeypatch.setattr(benchmark_measure, "SECONDS_A_TIMING", 1e-3)

    def on(*arguments):
        monkeypatch.setattr(sys, "argv", ["benchmark.py", *arguments])
        benchmark.main()

    return on


@pytest.fixture
def picky(monkeypatch):
    """Kernels of the transition that refuse, and that fail."""

    def fail(*operands, execution):
        raise RuntimeError("not on a Sunday")

    kernels = [Kernel("picky", fail, refuses=lambda *operands: "needs a GPU"), Kernel("broken", fail)]
    monkeypatch.setitem(KERNELS, "transition", [*KERNELS["transition"], *kernels])


def test_a_kernel_that_refuses_or_fails_is_named_with_its_reason(picky):
    names = ("reference", "auto", "picky", "broken", "none")
    jobs = [Job(op="pair_transition", N_seq=None, N_res=3, kernel=name) for name in names]
    timings = time_side_by_side(jobs, repeats=2)
    assert [len(timings[job].seconds) for job in jobs[:2]] == [2, 2]
    assert timings[jobs[0]].ran == "transition=reference"
    reasons = [Results(timings, {}).row(job)["refusal"] for job in jobs]
    refusal = "kernel 'picky' cannot serve transition: needs a GPU"
    assert reasons == [None, None, refusal, "RuntimeError: not on a Sunday", "not listed for transition"]


def test_only_kernels_asked_for_refuse_aloud(run, tmp_path, picky):
    def kernels(*arguments):
        run("--ops", "pair_transition", "--sizes", "1,3", "--measure", "time", "--out", str(tmp_path), *arguments)
        return {row["kernel"] for row in read_rows(tmp_path)}

    assert {"reference", "broken"} <= kernels()
    assert "picky" not in kernels()
    assert kernels("--kernels", "picky") == {"picky"}


def test_memory_is_what_a_pass_needs_beyond_inputs_and_weights():
    job = Job(op="pair_transition", N_seq=None, N_res=256)
    hidden, update = (256**2 * c * 4 / 2**20 for c in (512, 128))
    assert peak_memory(job) == pytest.approx(2 * hidden + update, rel=0.25)  # ReLU's input and output; the update


def test_memory_of_a_kernel_that_is_not_listed_is_refused():
    with pytest.raises(KernelError, match="not listed for transition"):
        peak_memory(Job(op="pair_transition", N_seq=None, N_res=3, kernel="none"))


def test_the_allocator_is_named_by_what_tunes_it():
    assert allocator("cpu", {}).endswith("default")
    tuned = allocator("cpu", {"LD_PRELOAD": "/usr/lib/libjemalloc.so.2", "GLIBC_TUNABLES": "glibc.malloc.x=1"})
    assert tuned.startswith("libjemalloc.so.2 ")
    assert tuned.endswith("glibc.malloc.x=1")


def test_a_run_writes_the_rows_asked_for_and_a_picture(run, tmp_path, capsys):
    run(
        "--ops", "pair_transition", "msa_att_row", "--sizes", "2,3", "3,4", "--directions", "forward+backward",
        "--kernels", "reference", "auto", "--recompute", "none", "layer", "--measure", "time", "--repeats", "2",
        "--draw", "msa_att_row", "--out", str(tmp_path),
    )  # fmt: skip
    rows = read_rows(tmp_path)
    found = [(row["op"], row["N_seq"], row["N_res"], row["kernel"], row["recompute"]) for row in rows]
    sizes = [(op, str(N_seq), str(N_res)) for op, N_seq, N_res in SIZES]
    ways = [(kernel, recompute) for kernel in ("reference", "auto") for recompute in ("none", "layer")]
    assert found == [(*size, *way) for size in sizes for way in ways]
    for row in rows:
        assert float(row["over_limit"]) > 0
        assert float(row["speed_over_reference"]) > 0
        assert row["torch"] == torch.__version__
        assert row["allocator"]
    assert (tmp_path / "benchmark_float32_1.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {"benchmark.csv", "benchmark_float32_1.png"}
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 120


def test_what_was_measured_before_an_interruption_is_kept(run, tmp_path, monkeypatch, capsys):
    def interrupted(job):
        raise KeyboardInterrupt

    monkeypatch.setattr(benchmark, "peak_memory", interrupted)
    with pytest.raises(SystemExit, match="interrupted"):
        run("--ops", "pair_transition", "--sizes", "1,3", "--repeats", "1", "--out", str(tmp_path))
    assert {row["direction"] for row in read_rows(tmp_path)} == {"forward", "forward+backward"}
    assert "pair_transition" in capsys.readouterr().out


def read_rows(folder):
    with (folder / "benchmark.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kernels", "fastest"], "unknown kernel fastest, expected auto or one of reference"),
        (["--sizes", "128x256"], "'128x256' is not two positive numbers"),
        (["--repeats", "-1"], "must be at least 1"),
    ],
)
def test_a_mistake_is_named(run, arguments, words):
    with pytest.raises(InputError, match=words):
        run(*arguments)
