"""What the benchmark writes: tables, a CSV file, and pictures. rich and matplotlib are imported on first use."""

import csv
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal

import torch
from benchmark_cases import CASES, Job
from benchmark_measure import NotMeasuredError, Outcome, Timing, allocator, processor

from evoformer.execution import Recompute
from evoformer.files import written_whole
from evoformer.kernels import KernelError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

LineStyle = Literal["-", "--", "-.", ":"] | tuple[int, tuple[int, int]]
COLORS = ("tab:gray", "tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink")


@dataclass
class Results:
    """What was measured of each job; jobs stand in the order in which their first measurement came."""

    timings: dict[Job, Outcome]
    memory: dict[Job, float | KernelError | NotMeasuredError]

    def jobs(self) -> list[Job]:
        """All jobs, those of the same op, size and direction together."""
        found = dict.fromkeys([*self.timings, *self.memory])
        groups = dict.fromkeys(map(_group, found))
        return [job for group in groups for job in found if _group(job) == group]

    def row(self, job: Job) -> dict[str, object]:
        """The job and its figures by their names; None is what was not measured."""
        timing, MiB = self.timings.get(job), self.memory.get(job)
        reference = self.timings.get(replace(job, kernel="reference", recompute="none", in_place=False))
        figures: dict[str, object] = dict.fromkeys(
            ("ms", "spread", "limit_ms", "gemm_gflops", "over_limit", "reference_over_limit", "speed_over_reference")
        )
        if isinstance(timing, Timing):
            limit = median(timing.limits)
            figures |= {
                "ms": 1e3 * median(timing.seconds),
                "spread": timing.spread,
                "limit_ms": 1e3 * limit,
                "gemm_gflops": job.flops() / limit / 1e9,
                "over_limit": timing.over_limit,
            }
            if isinstance(reference, Timing):
                figures["reference_over_limit"] = reference.over_limit
                figures["speed_over_reference"] = timing.speed_over(reference)
        refusal = next((str(given) for given in (timing, MiB) if isinstance(given, Exception)), None)
        return {
            **asdict(job),
            **figures,
            "MiB": MiB if isinstance(MiB, float) else None,
            "ran": timing.ran if isinstance(timing, Timing) else None,
            "refusal": refusal,
            "allocator": allocator(job.device),
            "processor": processor(job.device),
            "torch": torch.__version__,
        }

    def write_csv(self, path: Path) -> None:
        """One line a job."""
        rows = [self.row(job) for job in self.jobs()]
        with written_whole(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)

    def tables(self) -> Iterator["Table"]:
        """A table for each dtype and number of threads."""
        jobs = self.jobs()
        for dtype, threads in dict.fromkeys((job.dtype, job.threads) for job in jobs):
            yield self._table([job for job in jobs if (job.dtype, job.threads) == (dtype, threads)])

    def _table(self, jobs: list[Job]) -> "Table":
        from rich import box
        from rich.table import Table
        from rich.text import Text

        first = jobs[0]
        where = processor(first.device) + ("" if first.device == "cuda" else f", {_threads(first)}")
        table = Table(
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            title=f"{first.dtype}, {where}, PyTorch {torch.__version__}, allocator {allocator(first.device)}",
            caption="ms: median of the repeats; spread: their range over it; limit: the FLOPs at the speed of a GEMM; "
            "ref/limit: the reference's multiple of it; speed: times the reference's; MiB: beyond inputs and weights",
        )
        for heading in ("op", "N_seq,N_res", "pass", "way"):
            table.add_column(heading, overflow="fold", no_wrap=heading != "way")
        for heading in ("ms", "spread", "limit", "x limit", "ref/limit", "speed", "MiB"):
            table.add_column(heading, justify="right", no_wrap=True)
        for _, group in groupby(jobs, _group):
            for i, job in enumerate(group):
                row = self.row(job)
                names = (job.op, _size(job), "f+b" if job.backward else "fwd") if i == 0 else ("", "", "")
                way = Text(_way(job)) if row["refusal"] is None else Text(f"{_way(job)}: {row['refusal']}", "yellow")
                table.add_row(
                    *names,
                    way,
                    _shown(row["ms"], _three_digits),
                    _shown(row["spread"], "{:.0%}".format),
                    _shown(row["limit_ms"], _three_digits),
                    _shown(row["over_limit"], "{:.2f}".format),
                    _shown(row["reference_over_limit"], "{:.2f}".format),
                    _shown(row["speed_over_reference"], "{:.2f}".format),
                    _shown(row["MiB"], "{:,.0f}".format),
                )
            table.add_section()
        return table

    def draw(self, folder: Path, ops: list[str]) -> list[Path]:
        """Speed and memory against N_res, a picture for each dtype and number of threads."""
        paths = []
        jobs = self.jobs()
        for dtype, threads in dict.fromkeys((job.dtype, job.threads) for job in jobs):
            chosen = [job for job in jobs if (job.dtype, job.threads) == (dtype, threads) and job.op in ops]
            if chosen:
                paths.append(folder / f"benchmark_{dtype}_{threads}.png")
                self._draw(chosen, paths[-1])
        return paths

    def _draw(self, jobs: list[Job], path: Path) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
        from matplotlib.ticker import LogLocator, NullLocator

        ops = list(dict.fromkeys(job.op for job in jobs))
        colors = dict(zip(dict.fromkeys(job.kernel for job in jobs), COLORS, strict=False))
        figure = Figure(figsize=(2.6 * max(len(ops), 3), 5.8), layout="constrained")
        FigureCanvasAgg(figure)  # a canvas of its own: nobody's pyplot is touched
        panels = figure.subplots(2, len(ops), squeeze=False, sharey="row")
        for column, op in enumerate(ops):
            speed, memory = panels[0][column], panels[1][column]
            speed.set_title(op, fontsize=10)
            speed.axhline(1, color="black", linewidth=0.8)
            for lines in _lines([job for job in jobs if job.op == op]):
                color = colors[lines[0].kernel]
                self._line(speed, lines, "over_limit", color)
                self._line(memory, lines, "MiB", color)
            for axes in (speed, memory):
                _ticks(axes, [job for job in jobs if job.op == op])
            if not any(isinstance(self.memory.get(job), float) for job in jobs if job.op == op):
                memory.text(0.5, 0.5, "not measured", transform=memory.transAxes, ha="center", fontsize=9)
            memory.set_yscale("log")
            memory.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            memory.yaxis.set_major_formatter("{x:,g}")
            memory.yaxis.set_minor_locator(NullLocator())
            memory.set_xlabel("N_res" if CASES[op].inputs == "z" else "N_res (N_seq)", fontsize=9)
        panels[0][0].set_ylim(bottom=0)
        panels[0][0].set_ylabel("time, in multiples of the GEMM limit", fontsize=9)
        panels[1][0].set_ylabel("memory, MiB", fontsize=9)
        handles = [Line2D([], [], color=color, marker="o", markersize=4, label=name) for name, color in colors.items()]
        styles = {_style(job): label for job in jobs if (label := _style_label(job))}
        handles += [Line2D([], [], color="black", linestyle=style, label=label) for style, label in styles.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9, frameon=False)
        where = processor(jobs[0].device) + ("" if jobs[0].device == "cuda" else f", {_threads(jobs[0])}")
        figure.suptitle(f"{jobs[0].dtype}, {where}, allocator {allocator(jobs[0].device)}", fontsize=10)
        with written_whole(path) as temporary:
            figure.savefig(temporary, dpi=140)

    def _line(self, axes: "Axes", jobs: list[Job], figure: str, color: str) -> None:
        points = [(job.N_res, value) for job in jobs if (value := self.row(job)[figure]) is not None]
        if points:
            style = _style(jobs[0])
            axes.plot(*zip(*points, strict=True), linestyle=style, color=color, marker="o", markersize=4, linewidth=1.3)


def _group(job: Job) -> tuple[object, ...]:
    """What jobs share that are compared with each other."""
    return job.dtype, job.threads, job.op, job.N_seq, job.N_res, job.direction


def _way(job: Job) -> str:
    recompute = "" if job.recompute == "none" else f", recompute {job.recompute}"
    return job.kernel + recompute + (", in place" if job.in_place else "")


def _size(job: Job) -> str:
    return f"{job.N_res}" if job.N_seq is None else f"{job.N_seq},{job.N_res}"


def _threads(job: Job) -> str:
    return "1 thread" if job.threads == 1 else f"{job.threads} threads"


def _shown(value: object, form: Callable[[object], str]) -> str:
    return "" if value is None else form(value)


def _three_digits(value: object) -> str:
    """Three digits at least, without an exponent."""
    assert isinstance(value, float)
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def _lines(jobs: list[Job]) -> list[list[Job]]:
    """Jobs that differ in their size alone, by N_res; of several N_seq the largest."""
    lines: dict[Job, dict[int, Job]] = {}
    for job in sorted(jobs, key=lambda job: (job.N_res, job.N_seq or 0)):
        lines.setdefault(replace(job, N_seq=None, N_res=0), {})[job.N_res] = job
    return [list(line.values()) for line in lines.values()]


def _style(job: Job) -> LineStyle:
    if not job.backward:
        return (0, (1, 4)) if job.in_place else "--"
    styles: dict[Recompute, LineStyle] = {"none": "-", "layer": "-.", "block": ":"}
    return styles[job.recompute]


def _style_label(job: Job) -> str:
    recompute = "" if job.recompute == "none" else f", recompute {job.recompute}"
    return ("forward + backward" if job.backward else "forward") + recompute + (", in place" if job.in_place else "")


def _ticks(axes: "Axes", jobs: list[Job]) -> None:
    """N_res at its places on a logarithmic axis, N_seq below."""
    labels = {line.N_res: f"{line.N_res}" + (f"\n({line.N_seq})" if line.N_seq else "") for line in _largest(jobs)}
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(labels), list(labels.values()), fontsize=8)
    axes.tick_params(axis="x", which="minor", bottom=False)
    axes.tick_params(axis="y", labelsize=8)
    axes.grid(color="0.9")
    axes.set_xlim(min(labels) / 1.3, max(labels) * 1.3)


def _largest(jobs: list[Job]) -> list[Job]:
    """The job of most sequences for each N_res."""
    return list({job.N_res: job for job in sorted(jobs, key=lambda job: (job.N_res, job.N_seq or 0))}.values())
