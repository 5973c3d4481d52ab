"""What the benchmark writes: tables, a CSV file, and pictures. rich and matplotlib are imported on first use."""

import csv
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import cycle, groupby, product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal, get_args

import torch
from benchmark_cases import CASES, Direction, Job
from benchmark_measure import NotMeasuredError, Outcome, Timing, allocator, processor

from evoformer.execution import Recompute
from evoformer.files import written_whole
from evoformer.kernels import KernelError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

LineStyle = Literal["-", "--", "-.", ":"]
LABELS = {"over_limit": "multiple of the GEMM limit", "MiB": "memory, MiB"}
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

        table = Table(
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            title=f"{_title(jobs[0])}, PyTorch {torch.__version__}",
            caption="size: N_seq,N_res or N_res; ms: median of the repeats; spread: their range over it; limit: the "
            "FLOPs at the speed of a GEMM; ref/limit: the reference's multiple of it; speed: times the reference's; "
            "MiB: beyond inputs and weights",
        )
        for heading in ("op", "size", "pass", "way"):
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

        ops = list(dict.fromkeys(job.op for job in jobs))
        rows = [
            (figure, direction)
            for figure, direction in product(("over_limit", "MiB"), get_args(Direction))
            if any(self.row(job)[figure] is not None for job in jobs if job.direction == direction)
        ]
        if not rows:
            return
        colors = dict(zip(dict.fromkeys(job.kernel for job in jobs), cycle(COLORS), strict=False))
        figure = Figure(figsize=(2.6 * max(len(ops), 3), 1.2 + 2.3 * len(rows)), layout="constrained")
        FigureCanvasAgg(figure)  # a canvas of its own: nobody's pyplot is touched
        panels = figure.subplots(len(rows), len(ops), squeeze=False, sharex="col", sharey="row")
        for (name, direction), row in zip(rows, panels, strict=True):
            row[0].set_ylabel(f"{direction}\n{LABELS[name]}", fontsize=9)
            for op, axes in zip(ops, row, strict=True):
                shown = [job for job in jobs if job.op == op and job.direction == direction]
                for line in _lines(shown):
                    self._line(axes, line, name, colors[line[0].kernel])
                if all(self.row(job)[name] is None for job in shown):
                    axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", fontsize=9)
                _scale(axes, name, [job for job in jobs if job.op == op])
            if name == "over_limit":
                row[0].set_ylim(bottom=0)
        for op, top, bottom in zip(ops, panels[0], panels[-1], strict=True):
            top.set_title(op, fontsize=10)
            bottom.set_xlabel("N_res" if CASES[op].inputs == "z" else "N_res (N_seq)", fontsize=9)
        handles = [Line2D([], [], color=color, marker="o", markersize=4, label=name) for name, color in colors.items()]
        styles = dict.fromkeys((_style(job), _changes(job)) for job in jobs if _changes(job))
        handles += [Line2D([], [], color="black", linestyle=style, label=label) for style, label in styles]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9, frameon=False)
        figure.suptitle(_title(jobs[0]), fontsize=10)
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
    return ", ".join(filter(None, [job.kernel, _changes(job)]))


def _changes(job: Job) -> str:
    """How it runs other than by default."""
    if job.in_place:
        return "in place"
    return "" if job.recompute == "none" else f"recompute {job.recompute}"


def _size(job: Job) -> str:
    return f"{job.N_res}" if job.N_seq is None else f"{job.N_seq},{job.N_res}"


def _title(job: Job) -> str:
    """What all jobs of a table or a picture share."""
    threads = "" if job.device == "cuda" else f", {job.threads} thread{'s' if job.threads > 1 else ''}"
    return f"{job.dtype}, {processor(job.device)}{threads}, allocator {allocator(job.device)}"


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
    if job.in_place:
        return "-."
    styles: dict[Recompute, LineStyle] = {"none": "-", "layer": "--", "block": ":"}
    return styles[job.recompute]


def _scale(axes: "Axes", figure: str, jobs: list[Job]) -> None:
    """N_res at its places on a logarithmic axis, N_seq below; memory on a logarithmic axis, too."""
    from matplotlib.ticker import LogLocator, NullLocator

    labels = {job.N_res: f"{job.N_res}" + (f"\n({job.N_seq})" if job.N_seq else "") for job in _largest(jobs)}
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(labels), list(labels.values()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(labels) / 1.3, max(labels) * 1.3)
    if figure == "over_limit":
        axes.axhline(1, color="black", linewidth=0.8)
    else:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_minor_locator(NullLocator())
    axes.tick_params(labelsize=8)
    axes.grid(color="0.9")


def _largest(jobs: list[Job]) -> list[Job]:
    """The job of most sequences for each N_res."""
    return list({job.N_res: job for job in sorted(jobs, key=lambda job: (job.N_res, job.N_seq or 0))}.values())
