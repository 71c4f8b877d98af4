"""The calls of `fairring bench sparse`, the bytes of their best forms, and the tables."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from fairring.bench.arithmetic import percentile
from fairring.bench.contestants import STOCK
from fairring.bench.job import Job
from fairring.bench.memory import Footprint
from fairring.bench.placement import Placement
from fairring.bench.race import Go, Heat, Levels, Racer, Runner, race_all
from fairring.bench.report import Report, print_heading
from fairring.bench.rows import Sample, Times, times
from fairring.bench.sparse import DENSE, SPARSE, Options
from fairring.bench.sparse_rows import Bound, Table, Touched, bounds, touched
from fairring.bench.table import BACKEND, MISSING, WRONG, Columns, amount, figure, make_table, ratio
from fairring.by_level import level_names
from fairring.table import show as show_table

SPARE = 0.8  # at most this share of a host's free memory may be needed
STAGING_BYTES = 64 << 20  # about FAIRRING_TOTAL_MEMORY's default and the additional staging of small calls


@dataclass(frozen=True)
class Entrant:
    racer: Racer
    form: str

    def needs(self, touched: Touched) -> int:
        """About the bytes on one rank, besides the memory that all entrants' goes share."""
        row_bytes = touched.width * touched.dtype.itemsize
        most, result = max(map(len, touched.of_rank)), len(touched.union)
        if self.form == DENSE:
            return touched.rows * row_bytes + STAGING_BYTES
        if self.racer.contestant.backend == STOCK:  # gathers every rank's rows, and adds them up one rank after another
            return (3 * len(touched.of_rank) * most + 2 * result) * row_bytes
        return 2 * (most + result) * row_bytes + STAGING_BYTES


class Course:
    """One way to draw rows, and one share of them. Known after the start: bounds by level, and what was left out."""

    def __init__(self, chosen: Options, drawn: str, share: float, places: list[Placement]) -> None:
        self.drawn, self.density, self._chosen, self._places = drawn, share, chosen, places
        self.name = f"{share:.3g} of the rows, {drawn}"
        self.touched = max(1, round(share * chosen.rows))
        self.union = 0
        self.bounds: dict[str, Bound] = {}
        self.left_out: list[str] = []

    def start(self, racers: Sequence[Racer]) -> list[Runner]:
        of_rank = [touched(self._chosen.rows, self.touched, self.drawn, place.rank) for place in self._places]
        rows = Touched(self._chosen.rows, self._chosen.width, getattr(torch, self._chosen.dtype), of_rank)
        self.union = len(rows.union)
        table = Table(rows.rows, rows.width * rows.dtype.itemsize, self.union)
        self.bounds = bounds(rows.brought(self._places), table)
        running = []
        for entrant in (Entrant(racer, form) for form in self._chosen.forms for racer in racers):
            if why := obstacle(entrant, rows):
                self.left_out.append(f"{self.name}: {entrant.racer.contestant.name}, {entrant.form} {why}")
            else:
                running.append(entrant)
        return runners(rows, running)


@dataclass(frozen=True)
class Row(Times):
    """bounds, levels: by level; bytes of the busiest rank, machine, site. None: not measured."""

    indices: str
    density: float
    touched: int
    union: int
    form: str
    of_limit: float | None
    vs_stock_sparse: float | None
    vs_own_dense: float | None
    wrong: int
    cpu_seconds: float
    levels: dict[str, Mapping[str, int]] | None
    bounds: dict[str, Bound]
    peak_bytes: int | None


def measure(arguments: Namespace, chosen: Options, job: Job) -> int:
    report = Report(arguments, job)
    racers = [Racer(contestant) for contestant in chosen.contestants]
    courses = [Course(chosen, drawn, share, job.places) for drawn, share in chosen.courses]
    heats = [Heat(one.name, partial(one.start, racers), chosen.warm_up, chosen.iterations) for one in courses]
    measured = race_all(heats, job.is_first, partial(busiest, places=job.places))
    report.measure_links()
    pairs = zip(courses, measured, strict=True)
    rows = [row for course, samples in pairs for row in make_rows(course, samples, report.link, report.site_link)]
    left_out = [text for course in courses for text in course.left_out]
    facts = {"rows": chosen.rows, "width": chosen.width, "dtype": chosen.dtype, "left_out": left_out}
    return report.end("sparse", facts, rows, show)


def obstacle(entrant: Entrant, touched: Touched) -> str | None:
    """The reason why its memory would not suffice; None: it does. Called by all ranks; the same answer on all."""
    free = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()  # one for the machines of an emulated cluster
    hosts = [(boot, int(free[1]) * 1024 if free else 0)] * dist.get_world_size()
    dist.all_gather_object(hosts, hosts[0])
    boots = [boot for boot, _ in hosts]
    for boot in dict.fromkeys(boots):
        least = min(free_bytes for other, free_bytes in hosts if other == boot)
        needed = boots.count(boot) * entrant.needs(touched)
        if needed > SPARE * least:
            gib = 1 << 30
            return f"needs some {needed / gib:.1f} GiB on a host that has {least / gib:.1f} GiB free"
    return None


def runners(touched: Touched, entrants: Sequence[Entrant]) -> list[Runner]:
    """The runners share the dense table."""
    rows = touched.rows if any(entrant.form == DENSE for entrant in entrants) else 0
    dense = torch.zeros(rows, touched.width, dtype=touched.dtype)

    def prepare(entrant: Entrant, turn: int) -> Go:
        rank = dist.get_rank()
        if entrant.form == DENSE:
            touched.fill(dense, rank, turn)
        tensor = dense if entrant.form == DENSE else touched.sparse(rank, turn)
        return Go(partial(dist.all_reduce, tensor, group=entrant.racer.group), partial(touched.wrong, tensor, turn))

    return [Runner(entrant.racer, Footprint(), partial(prepare, entrant), form=entrant.form) for entrant in entrants]


def busiest(traffic: list[Levels | None], places: list[Placement]) -> Levels | None:
    """Messages and bytes by level, of the busiest rank, machine, site; traffic: of each rank."""
    counted = [one for one in traffic if one is not None]
    if len(counted) < len(traffic):
        return None
    sites = len({place.site for place in places}) > 1
    whose: dict[int, list[Any]] = {0: [p.rank for p in places], 1: [p.machine for p in places]}
    whose[2] = [p.site for p in places] if sites else whose[1]
    found: dict[int, dict[str, int]] = {}
    for level in sorted({level for one in counted for level in one}):
        sums: dict[Any, dict[str, int]] = {}
        for member, one in zip(whose[level], counted, strict=True):
            counts = sums.setdefault(member, {"messages": 0, "bytes": 0})
            for name in counts:
                counts[name] += one.get(level, {}).get(name, 0)
        found[level] = max(sums.values(), key=lambda counts: counts["bytes"])
    return found


def make_rows(course: Course, samples: Sequence[Sample], link: float | None, site_link: float | None) -> list[Row]:
    """link, site_link: bytes/s of the slowest machine and of the slowest site, one way; None: no such network."""
    medians = {(one.name, one.form): percentile(one.seconds, 50) for one in samples}
    speeds = {"rail": link, "site": site_link}
    least_times = [bound.bytes / speed for level, bound in course.bounds.items() if (speed := speeds.get(level))]
    least = max(least_times, default=None)
    names = level_names(2 if site_link else 1)

    def beside(other: tuple[str, str], mine: float) -> float | None:
        return medians[other] / mine if other in medians else None

    return [
        Row(
            **times(one.name, one.seconds),
            indices=course.drawn,
            density=course.density,
            touched=course.touched,
            union=course.union,
            form=one.form,
            of_limit=least / medians[one.name, one.form] if least else None,
            vs_stock_sparse=beside((STOCK, SPARSE), medians[one.name, one.form]),
            vs_own_dense=beside((one.name, DENSE), medians[one.name, one.form]) if one.form == SPARSE else None,
            wrong=one.wrong or 0,
            cpu_seconds=percentile(one.cpu_seconds, 50),
            levels=None if not one.traffic else {names[level]: moved for level, moved in one.traffic.items()},
            bounds=course.bounds,
            peak_bytes=one.peak_bytes,
        )
        for one in samples
    ]


COURSE = ("rows of a rank", lambda row: f"{row.density * 100:g}% {row.indices}")
KEYS: Columns = (COURSE, BACKEND, ("form", lambda row: row.form))
TIMES: Columns = (
    *KEYS,
    figure("median\nms", "median", ".2f", 1e3),
    figure("± MAD\nms", "deviation", ".2f", 1e3),
    figure("p99\nms", "p99", ".2f", 1e3),
    figure("of_limit", "of_limit", ".3f"),
    ratio("vs gloo\nsparse", "vs_stock_sparse"),
    ratio("vs own\ndense", "vs_own_dense"),
    WRONG,
)
NEEDS: Columns = (COURSE, figure("touched", "touched", ".0f"), figure("union", "union", ".0f"))
COSTS: Columns = (figure("CPU\ns", "cpu_seconds", ".2f"), figure("memory\nMiB", "peak_bytes", ".0f", 1 / (1 << 20)))


def _needed(level: str) -> Columns:
    return ((level, lambda row: f"{amount(round(row.bounds[level].bytes))}, {row.bounds[level].form}"),)


def _moved(level: str) -> Columns:
    def cell(row: Row, of_best: bool) -> str:
        moved = (row.levels or {}).get(level)
        if moved is None:
            return MISSING
        if of_best:
            return f"{moved['bytes'] / row.bounds[level].bytes:.2f}"
        return f"{amount(moved['bytes'])} / {moved['messages']}"

    heads = (f"{level}\nbytes / messages", f"{level}\n÷ best")
    return tuple((head, partial(cell, of_best=place == 1)) for place, head in enumerate(heads))


def show(facts: dict[str, Any], rows: Sequence[Row]) -> None:
    print_heading(facts, f"table of {facts['rows']} x {facts['width']}, {facts['dtype']}")
    for text in facts["left_out"]:
        print(f"left out: {text}")
    if not rows:
        return
    levels = list(rows[0].bounds)
    needs = [*NEEDS, *(column for level in levels for column in _needed(level))]
    costs = [*KEYS, *(column for level in levels for column in _moved(level)), *COSTS]
    show_table(make_table(TIMES, rows, 3), "Time of the slowest rank")
    one_each = {(row.density, row.indices): row for row in rows}
    show_table(make_table(needs, list(one_each.values()), 1, apart=False), "Bytes that the best form needs")
    show_table(make_table(costs, rows, 3), "Cost of one go: busiest rank, machine, site")
