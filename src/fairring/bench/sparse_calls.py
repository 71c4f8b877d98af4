"""The calls of `fairring bench sparse`, the bytes of their best forms, and the tables."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from fairring.bench.arithmetic import median_deviation, percentile
from fairring.bench.contestants import STOCK
from fairring.bench.job import Job
from fairring.bench.memory import Footprint
from fairring.bench.placement import Placement
from fairring.bench.progress import Reporter, reporting
from fairring.bench.race import Go, Levels, Racer, Runner, race
from fairring.bench.rows import Sample
from fairring.bench.sparse import DENSE, SPARSE, Options
from fairring.bench.sparse_rows import Bound, Table, Touched, bounds, touched
from fairring.bench.table import BACKEND, MISSING, WRONG, Columns, amount, figure, make_table, ratio
from fairring.bench.workload import Report, print_heading
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


@dataclass(frozen=True)
class Measured:
    """The measurements of one course. touched: rows of the rank that touches most. samples: with their forms."""

    drawn: str
    density: float
    touched: int
    table: Table
    bounds: Mapping[str, Bound]
    samples: Sequence[tuple[str, Sample]]
    left_out: Sequence[str]


@dataclass(frozen=True)
class Row:
    """Times in seconds. bounds, levels: by level; bytes of the busiest rank, machine, site. None: not measured."""

    indices: str
    density: float
    touched: int
    union: int
    form: str
    backend: str
    seconds: list[float]  # of the slowest rank, one per round
    median: float
    deviation: float
    p99: float
    of_limit: float | None
    vs_stock_sparse: float | None
    vs_own_dense: float | None
    wrong: int
    cpu_seconds: float
    levels: dict[str, Mapping[str, int]] | None
    bounds: dict[str, Bound]
    peak_bytes: int | None


def measure(arguments: Namespace, chosen: Options, job: Job) -> int:
    """Returns the exit code, equal on all ranks."""
    written = Report(arguments, job)
    racers = [Racer(contestant) for contestant in chosen.contestants]
    entrants = [Entrant(racer, form) for form in chosen.forms for racer in racers]
    with reporting(job.is_first, len(chosen.courses) * (chosen.warm_up + chosen.iterations)) as report:
        measured = [_run(chosen, course, entrants, job, report) for course in chosen.courses]
    written.measure_links()
    rows = [row for one in measured for row in make_rows(one, written.link, written.site_link)]
    if job.is_first:
        left_out = [text for one in measured for text in one.left_out]
        facts = written.facts(rows=chosen.rows, width=chosen.width, dtype=chosen.dtype, left_out=left_out)
        if rows:
            show(facts, rows)
        written.write("sparse", facts, [asdict(row) for row in rows])
    return 1 if any(row.wrong for row in rows) else 0


def _run(chosen: Options, course: tuple[str, float], entrants: list[Entrant], job: Job, report: Reporter) -> Measured:
    drawn, share = course
    name = f"{share:.3g} of the rows, {drawn}"
    report.now(name)
    count = max(1, round(share * chosen.rows))
    of_rank = [touched(chosen.rows, count, drawn, rank) for rank in range(job.place.world)]
    rows = Touched(chosen.rows, chosen.width, getattr(torch, chosen.dtype), of_rank)
    why = {entrant: obstacle(entrant, rows) for entrant in entrants}
    running = [entrant for entrant in entrants if why[entrant] is None]
    left_out = [f"{name}: {one.racer.contestant.name}, {one.form} {text}" for one, text in why.items() if text]
    for text in left_out:
        report.done(f"left out: {text}")
    by_place = partial(busiest, places=job.places)
    samples = race(runners(rows, running), chosen.warm_up, chosen.iterations, report.advance, by_place)
    pairs = list(zip((one.form for one in running), samples, strict=True))
    medians = (f"{one.name} {form} {percentile(one.seconds, 50) * 1e3:.1f} ms" for form, one in pairs)
    report.done(f"{name}: {', '.join(medians)}")
    table = Table(chosen.rows, chosen.width * rows.dtype.itemsize, len(rows.union))
    return Measured(drawn, share, count, table, bounds(rows.brought(job.places), table), pairs, left_out)


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

    return [Runner(entrant.racer, Footprint(), partial(prepare, entrant)) for entrant in entrants]


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


def make_rows(measured: Measured, link: float | None, site_link: float | None) -> list[Row]:
    """link, site_link: bytes/s of the slowest machine and of the slowest site, one way; None: no such network."""
    medians = {(one.name, form): percentile(one.seconds, 50) for form, one in measured.samples}
    speeds = {"rail": link, "site": site_link}
    times = [bound.bytes / speed for level, bound in measured.bounds.items() if (speed := speeds.get(level))]
    least = max(times, default=None)
    names = level_names(2 if site_link else 1)

    def beside(other: tuple[str, str], mine: float) -> float | None:
        return medians[other] / mine if other in medians else None

    return [
        Row(
            indices=measured.drawn,
            density=measured.density,
            touched=measured.touched,
            union=measured.table.result,
            form=form,
            backend=one.name,
            seconds=one.seconds,
            median=(median := medians[one.name, form]),
            deviation=median_deviation(one.seconds),
            p99=percentile(one.seconds, 99),
            of_limit=least / median if least else None,
            vs_stock_sparse=beside((STOCK, SPARSE), median),
            vs_own_dense=beside((one.name, DENSE), median) if form == SPARSE else None,
            wrong=one.wrong or 0,
            cpu_seconds=percentile(one.cpu_seconds, 50),
            levels=None if not one.traffic else {names[level]: moved for level, moved in one.traffic.items()},
            bounds=dict(measured.bounds),
            peak_bytes=one.peak_bytes,
        )
        for form, one in measured.samples
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
    """rows: one or more."""
    print_heading(facts, f"table of {facts['rows']} x {facts['width']}, {facts['dtype']}")
    levels = list(rows[0].bounds)
    needs = [*NEEDS, *(column for level in levels for column in _needed(level))]
    costs = [*KEYS, *(column for level in levels for column in _moved(level)), *COSTS]
    show_table(make_table(TIMES, rows, 3), "Time of the slowest rank")
    one_each = {(row.density, row.indices): row for row in rows}
    show_table(make_table(needs, list(one_each.values()), 1, apart=False), "Bytes that the best form needs")
    show_table(make_table(costs, rows, 3), "Cost of one go: busiest rank, machine, site")
    for text in facts["left_out"]:
        print(f"left out: {text}")
