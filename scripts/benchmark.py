"""Time and memory of every op and block, beside what a GEMM can do.

    OMP_NUM_THREADS=1 python scripts/benchmark.py --quick
    OMP_NUM_THREADS=1 python scripts/benchmark.py --kernels reference auto --out results
    OMP_NUM_THREADS=1 python scripts/benchmark.py --ops block --sizes 128,128 --dtypes bfloat16 --measure time

What is measured and what counts as the limit stand in `benchmark_measure.py` and `benchmark_cases.py`.
"""

import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import torch
from benchmark_cases import CASES, Direction, Job
from benchmark_measure import NotMeasuredError, peak_memory, time_side_by_side
from benchmark_results import Results

from evoformer.errors import ArgumentParser, InputError, errors_in_one_line, require
from evoformer.execution import Recompute
from evoformer.files import writable_folder
from evoformer.kernels import KERNELS, KernelError

Size = tuple[int, int]  # N_seq, N_res
SIZES: list[Size] = [(16, 64), (128, 128), (128, 256)]
EXTRA_SIZES: list[Size] = [(1024, 128)]
QUICK_SIZES: list[Size] = [(16, 48), (24, 72)]
QUICK_EXTRA_SIZES: list[Size] = [(64, 48)]
DRAWN = ["msa_att_row", "outer_product_mean", "tri_mul_out", "tri_att_start", "block"]


def main() -> None:
    """Read the command line, measure, and print; what is there is printed after an interruption, too."""
    arguments = _arguments()
    require("rich", *(["matplotlib"] if arguments.out else []))
    from rich.console import Console

    folder = None if arguments.out is None else writable_folder(arguments.out)
    console = Console(width=None if sys.stdout.isatty() else 120)
    results = Results({}, {})
    interrupted = False
    try:
        with console.status("") as status:
            for doing in measured(arguments, results):
                status.update(doing)
                if folder is not None and (results.timings or results.memory):
                    results.write_csv(folder / "benchmark.csv")
    except KeyboardInterrupt:
        interrupted = True
    for table in results.tables():
        console.print(table)
    if folder is not None and (results.timings or results.memory):
        results.write_csv(folder / "benchmark.csv")
        for path in results.draw(folder, arguments.draw):
            console.print(f"wrote {path}")
        console.print(f"wrote {folder / 'benchmark.csv'}")
    if interrupted:
        sys.exit("error: interrupted; the rest was not measured")


def measured(arguments: Namespace, results: Results) -> Iterator[str]:
    """Measure and add to the results, one measurement after each yield, which says what comes.

    Without kernels asked for, those that refuse are passed over.
    """
    kernels = arguments.kernels or _known_kernels()
    refused: set[Job] = set()
    groups = list(_groups(arguments, kernels))
    if "time" in arguments.measure:
        for group in groups:
            yield f"time of {_words(group[0])}"
            for job, outcome in time_side_by_side(group, arguments.repeats).items():
                if isinstance(outcome, KernelError):
                    refused.add(job)
                if arguments.kernels or not isinstance(outcome, KernelError):
                    results.timings[job] = outcome
    jobs = [job for group in groups for job in group if not arguments.quick or _is_quick(job)]
    jobs = jobs if "memory" in arguments.measure else []
    for job in dict.fromkeys([*jobs, *_memory_jobs(arguments, kernels)]):
        if job in refused:
            continue
        yield f"memory of {_words(job)}, {job.kernel}"
        try:
            results.memory[job] = peak_memory(job)
        except NotMeasuredError as error:
            results.memory[job] = error
        except KernelError as error:
            if arguments.kernels:
                results.memory[job] = error


def _groups(arguments: Namespace, kernels: list[str]) -> Iterator[list[Job]]:
    """Jobs to time; those of a group differ in kernel and recomputation alone."""
    for dtype, threads, op in product(arguments.dtypes, arguments.threads, arguments.ops):
        case = CASES[op]
        sizes: list[Size] = arguments.extra_sizes if case.is_extra else arguments.sizes
        for N_seq, N_res in dict.fromkeys((None if case.inputs == "z" else N_seq, N_res) for N_seq, N_res in sizes):
            for direction in arguments.directions:
                job = Job(
                    op=op,
                    N_seq=N_seq,
                    N_res=N_res,
                    dtype=dtype,
                    device=arguments.device,
                    threads=threads,
                    direction=direction,
                )
                ways = [way for way in arguments.recompute if way != "block" or case.is_block]
                yield [
                    replace(job, kernel=kernel, recompute=recompute)
                    for kernel, recompute in product(kernels, ways if job.backward else ["none"])
                ]


def _memory_jobs(arguments: Namespace, kernels: list[str]) -> Iterator[Job]:
    """What is run for its memory alone: the sizes at which memory decides what can be run at all."""
    both: Direction = "forward+backward"
    ways: list[Recompute] = ["none", "layer", "block"]
    jobs = []
    if "targets" in arguments.measure:
        jobs += [Job(op="msa_att_row", N_seq=128, N_res=512, direction=both, recompute=way) for way in ways[:2]]
        jobs += [Job(op="extra_msa_att_row", N_seq=1024, N_res=128, direction=both)]
        jobs += [Job(op="block", N_seq=128, N_res=256, direction=both, recompute=way) for way in ways]
        jobs += [Job(op="block", N_seq=128, N_res=256, in_place=True)]
        jobs = [job for job in jobs if job.op in arguments.ops]
    if arguments.stack:
        jobs.append(Job(op="stack", N_seq=128, N_res=256, direction=both, recompute="block"))
    if arguments.large:
        jobs.append(Job(op="block", N_seq=512, N_res=1024, in_place=True))
    for dtype, threads, job, kernel in product(arguments.dtypes, arguments.threads, jobs, kernels):
        yield replace(job, dtype=dtype, device=arguments.device, threads=threads, kernel=kernel)


def _is_quick(job: Job) -> bool:
    """Whether its memory is measured in a quick run: each takes a process of its own."""
    return job.op in ("msa_att_row", "block") and job.backward


def _words(job: Job) -> str:
    size = job.N_res if job.N_seq is None else f"{job.N_seq},{job.N_res}"
    return f"{job.op} {size}, {job.dtype}, {job.direction}"


def _known_kernels() -> list[str]:
    """All names, the reference first: every op lists it, and speeds are beside it."""
    return list(dict.fromkeys(["reference", *(kernel.name for listed in KERNELS.values() for kernel in listed)]))


def _arguments() -> Namespace:
    parser = ArgumentParser(
        description="Measure ops and blocks at AlphaFold's widths, weights and inputs random: the median time of a "
        "pass as a multiple of what its matmul FLOPs take at the speed of a GEMM, and peak memory, each in a new "
        "process. An op that does not list a kernel runs with auto in its place."
    )
    names = [name for name in CASES if name != "stack"]
    parser.add_argument("--ops", nargs="+", choices=names, default=names, metavar="OP", help=", ".join(names))
    for option, of, sizes in (("--sizes", "", SIZES), ("--extra-sizes", "of ops on the extra MSA ", EXTRA_SIZES)):
        shown = f"{of}({_shown(sizes)})"
        parser.add_argument(option, type=_size, nargs="+", metavar="N_seq,N_res", help=shown)
    parser.add_argument(
        "--dtypes", nargs="+", choices=("float32", "bfloat16", "float16"), default=["float32"], help="(float32)"
    )
    parser.add_argument(
        "--kernels", nargs="+", metavar="KERNEL", help=f"auto, {', '.join(_known_kernels())} (all that do not refuse)"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="(1)")
    parser.add_argument("--directions", nargs="+", choices=get_args(Direction), default=get_args(Direction))
    parser.add_argument(
        "--recompute", nargs="+", choices=get_args(Recompute), help="in forward and backward passes (none layer)"
    )
    parser.add_argument(
        "--measure",
        nargs="+",
        choices=("time", "memory", "targets"),
        help="targets: memory at sizes where it decides what can be run (all; targets only with the default sizes)",
    )
    parser.add_argument("--repeats", type=int, help="timings of each (5)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(%(default)s)")
    parser.add_argument("--stack", action="store_true", help="memory of 48 blocks at 128,256, recomputing each, too")
    parser.add_argument("--large", action="store_true", help="memory of a forward pass of a block at 512,1024, too")
    parser.add_argument("--quick", action="store_true", help="small sizes, in 2 minutes")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for benchmark.csv and the pictures")
    parser.add_argument(
        "--draw", nargs="+", choices=names, default=DRAWN, metavar="OP", help=f"ops in the pictures ({' '.join(DRAWN)})"
    )
    arguments = parser.parse_args()
    quick = arguments.quick
    has_targets = not (quick or arguments.sizes or arguments.extra_sizes)
    arguments.measure = arguments.measure or ["time", "memory", *(["targets"] if has_targets else [])]
    arguments.sizes = arguments.sizes or (QUICK_SIZES if quick else SIZES)
    arguments.extra_sizes = arguments.extra_sizes or (QUICK_EXTRA_SIZES if quick else EXTRA_SIZES)
    arguments.recompute = arguments.recompute or (["none"] if quick else ["none", "layer"])
    arguments.repeats = arguments.repeats or (3 if quick else 5)
    unknown = sorted(set(arguments.kernels or []) - {"auto", *_known_kernels()})
    if unknown:
        raise InputError(f"unknown kernel {', '.join(unknown)}, expected auto or one of {', '.join(_known_kernels())}")
    if min(arguments.repeats, *arguments.threads) < 1:
        raise InputError("--repeats and --threads must be at least 1")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: PyTorch finds no CUDA device here")
    return arguments


def _size(text: str) -> Size:
    try:
        N_seq, N_res = map(int, text.split(","))
    except ValueError:
        N_seq = N_res = 0
    if min(N_seq, N_res) < 1:
        raise ArgumentTypeError(f"{text!r} is not two positive numbers with a comma between, such as 128,256")
    return N_seq, N_res


def _shown(sizes: list[Size]) -> str:
    return " ".join(f"{N_seq},{N_res}" for N_seq, N_res in sizes)


if __name__ == "__main__":
    with errors_in_one_line():
        main()
