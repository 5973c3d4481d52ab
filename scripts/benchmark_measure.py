"""How the benchmark measures. Time: ways interleaved in one process, each beside a GEMM. Memory: each in a new process.

The limit of a pass is its matmul FLOPs at the speed of a square GEMM of the same dtype and threads. A GEMM runs before
and after every timing, and the faster of the two sets that timing's limit, so a machine that is busy for a while slows
both. Multiples and ratios are medians over repeats of timings in units of their own limit. With one thread the time is
the processor's, which other programs disturb least; with more it is the clock's, and on CUDA that between two events.

Memory is what a pass needs beyond inputs, weights and the gradient of the output: on Linux the peak resident size,
reset before the pass (VmHWM), minus the resident size then (VmRSS); elsewhere the growth of `ru_maxrss`; on CUDA the
peak of what PyTorch has allocated. A tiny pass runs first in the same way, so that the libraries that it needs are
loaded: checkpointing alone loads 120 MiB of them. Where malloc puts its heap differs between processes, and the result
with it: a few percent above 1 GiB, 10 % at 200 MiB.
"""

import dataclasses
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from benchmark_cases import Job, Workload

from evoformer.kernels import KernelError, kernels_used

GEMM_SIZE = {"cpu": 1024, "cuda": 8192}
SECONDS_A_TIMING = 0.05  # small passes run several times in one timing
MIB = 2**20
REFUSED = 3  # what a process returns if the kernel refuses


@dataclass(frozen=True)
class Timing:
    """Timings of one way of running.

    Attributes:
        seconds: of a pass, one for each repeat.
        limits: seconds that its FLOPs take in the GEMMs beside it.
        ran: the kernels that ran, by op.
    """

    seconds: list[float]
    limits: list[float]
    ran: str

    @property
    def over_limit(self) -> float:
        """The multiple of the limit."""
        return median(self._in_limits())

    @property
    def spread(self) -> float:
        """The range of the timings as a part of their median."""
        return (max(self.seconds) - min(self.seconds)) / median(self.seconds)

    def speed_over(self, reference: "Timing") -> float:
        """How many times as fast as the reference: timings of the same repeat are compared."""
        return median(theirs / ours for theirs, ours in zip(reference._in_limits(), self._in_limits(), strict=True))

    def _in_limits(self) -> list[float]:
        return [seconds / limit for seconds, limit in zip(self.seconds, self.limits, strict=True)]


class NotMeasuredError(Exception):
    """A way of running fails; the message says how."""


# A kernel that refuses is not at fault, so a run over all kernels passes over it; a failure is always shown.
Outcome = Timing | KernelError | NotMeasuredError


class Gemm:
    """A product of two square matrices, the measure of what a machine can do."""

    def __init__(self, job: Job) -> None:
        N = GEMM_SIZE[job.device]
        self.flops = 2 * N**3
        self.device = job.device
        a, b, c = (torch.randn(N, N, dtype=getattr(torch, job.dtype), device=job.device) for _ in range(3))
        self._run = lambda: torch.mm(a, b, out=c)
        seconds_of(self._run, self.device)

    def seconds_for(self, flops: int) -> float:
        """The time that so many FLOPs take, from the faster of two products."""
        return flops / self.flops * min(seconds_of(self._run, self.device) for _ in range(2))


def time_side_by_side(jobs: list[Job], repeats: int) -> dict[Job, Outcome]:
    """Time jobs that differ in nothing but their `Execution`, in turns."""
    first = jobs[0]
    torch.set_num_threads(first.threads)
    workload, gemm = Workload(first), Gemm(first)
    timings: dict[Job, Outcome] = {}
    calls: dict[Job, int] = {}
    for job in jobs:
        try:
            workload.use(job.execution())
            with kernels_used() as used:
                taken = seconds_of(lambda: _run(workload), first.device)
        except (KernelError, NotMeasuredError) as error:
            timings[job] = error
            continue
        timings[job] = Timing([], [], " ".join(sorted(f"{op}={kernel}" for op, kernel in used)))
        if first.device == "cuda" or taken < 20 * SECONDS_A_TIMING:  # the first pass is cold, and may have compiled
            taken = seconds_of(workload.run, first.device)
        calls[job] = math.ceil(SECONDS_A_TIMING / taken)
    timed = [(job, times) for job, times in timings.items() if isinstance(times, Timing)]
    for i in range(repeats if timed else 0):
        before = gemm.seconds_for(first.flops())
        for job, times in timed if i % 2 == 0 else reversed(timed):  # so that no job is always the first
            workload.use(job.execution())
            times.seconds.append(seconds_of(workload.run, first.device, calls[job]))
            after = gemm.seconds_for(first.flops())
            times.limits.append(min(before, after))
            before = after
    return timings


def seconds_of(run: Callable[[], object], device: str, calls: int = 1) -> float:
    """Seconds of a call: the mean of some in a row."""
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            run()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1e3 / calls
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    for _ in range(calls):
        run()
    return (clock() - begin) / calls


def peak_memory(job: Job) -> float:
    """MiB that a pass needs at the most, beyond inputs, weights and the gradient of the output.

    Raises:
        KernelError: the kernel refuses.
        NotMeasuredError: the memory is not enough, or the pass fails in another way.
    """
    job.execution()  # which may refuse, before a process is started
    if job.device == "cuda":
        return _peak_memory_here(job)
    command = [sys.executable, __file__, json.dumps(dataclasses.asdict(job))]
    package = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": package}
    )
    reason = (done.stderr.strip().splitlines() or [f"the process ended with code {done.returncode}"])[-1]
    if done.returncode == REFUSED:
        raise KernelError(reason)
    if done.returncode != 0:
        raise NotMeasuredError(reason)
    return float(done.stdout)


def _peak_memory_here(job: Job) -> float:
    torch.set_num_threads(job.threads)
    execution = job.execution()
    tiny = Workload(dataclasses.replace(job, N_seq=job.N_seq and 2, N_res=4))
    tiny.use(execution)
    tiny.run()
    workload = Workload(job)
    workload.use(execution)
    if job.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        _run(workload)
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / MIB
    before = _reset_peak()
    _run(workload)
    return (_peak() - before) / MIB


def _run(workload: Workload) -> None:
    """One pass.

    Raises:
        KernelError: the kernel refuses.
        NotMeasuredError: there is not enough memory, or the pass fails in another way.
    """
    try:
        workload.run()
    except KernelError:
        raise
    except Exception as error:  # one kernel that fails, someone else's perhaps, must not end the run
        is_memory = isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
        first_line = (str(error).splitlines() or [""])[0]
        raise NotMeasuredError("not enough memory" if is_memory else f"{type(error).__name__}: {first_line}") from error


def _reset_peak() -> int:
    """Forget the peak so far; bytes resident now."""
    if sys.platform != "linux":
        return _peak()
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    """The most bytes resident."""
    if sys.platform == "linux":
        return _status("VmHWM")
    import resource  # which Windows lacks

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def limit_memory() -> None:
    """Have an allocation that does not fit raise, rather than another program killed."""
    if sys.platform == "linux":
        import resource

        lines = Path("/proc/meminfo").read_text().splitlines()
        available = 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
        resource.setrlimit(resource.RLIMIT_DATA, (available, available))


def allocator(device: str, environment: Mapping[str, str] = os.environ) -> str:
    """What hands out the memory."""
    if device == "cuda":
        settings = environment.get("PYTORCH_CUDA_ALLOC_CONF")
        return f"CUDA {torch.cuda.get_allocator_backend()}" + (f" {settings}" if settings else "")
    library, version = platform.libc_ver()
    preloaded = [Path(name).name for name in environment.get("LD_PRELOAD", "").split()]
    tuned = environment.get("GLIBC_TUNABLES")
    return " ".join(filter(None, [*preloaded, library or sys.platform, version, tuned or "default"]))


def processor(device: str) -> str:
    """Name of the CPU or GPU."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    limit_memory()
    try:
        print(_peak_memory_here(Job(**json.loads(sys.argv[1]))))
    except (KernelError, NotMeasuredError) as error:
        print(error, file=sys.stderr)
        sys.exit(REFUSED if isinstance(error, KernelError) else 1)
