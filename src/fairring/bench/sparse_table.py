"""Rows of the sparse benchmark, and their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairring.bench.arithmetic import median_deviation, percentile
from fairring.bench.contestants import STOCK
from fairring.bench.sparse_bound import Bound, Table
from fairring.bench.table import MISSING, amount, named_table, number
from fairring.bench.workload import print_heading
from fairring.by_level import level_names
from fairring.table import Table as TextTable
from fairring.table import show as show_table

if TYPE_CHECKING:
    from fairring.bench.rows import Sample


@dataclass(frozen=True)
class Speeds:
    """Bytes/s of the slowest machine and of the slowest site, one way; None: there is no such network."""

    link: float | None
    site_link: float | None

    def least_seconds(self, bounds: Mapping[str, Bound]) -> float | None:
        """The time that the bounds' bytes take on the networks: the longer of the two."""
        pairs = (("rail", self.link), ("site", self.site_link))
        return max((bounds[level].bytes / speed for level, speed in pairs if speed and level in bounds), default=None)


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


def make_rows(measured: Measured, speeds: Speeds) -> list[Row]:
    medians = {(one.name, form): percentile(one.seconds, 50) for form, one in measured.samples}
    least = speeds.least_seconds(measured.bounds)
    names = level_names(2 if speeds.site_link else 1)

    def ratio(other: tuple[str, str], mine: float) -> float | None:
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
            median=medians[one.name, form],
            deviation=median_deviation(one.seconds),
            p99=percentile(one.seconds, 99),
            of_limit=least / medians[one.name, form] if least else None,
            vs_stock_sparse=ratio((STOCK, "sparse"), medians[one.name, form]),
            vs_own_dense=ratio((one.name, "dense"), medians[one.name, form]) if form == "sparse" else None,
            wrong=one.wrong or 0,
            cpu_seconds=percentile(one.cpu_seconds, 50),
            levels=None if not one.traffic else {names[level]: moved for level, moved in one.traffic.items()},
            bounds=dict(measured.bounds),
            peak_bytes=one.peak_bytes,
        )
        for form, one in measured.samples
    ]


def _course(row: Row) -> str:
    return f"{row.density * 100:g}% {row.indices}"


def _times(row: Row) -> list[str]:
    ratios = (row.vs_stock_sparse, row.vs_own_dense)
    return [
        *(number(figure, ".2f", 1e3) for figure in (row.median, row.deviation, row.p99)),
        number(row.of_limit, ".3f"),
        *(MISSING if ratio is None else f"{ratio:.2f}x" for ratio in ratios),
        str(row.wrong),
    ]


def _costs(row: Row, levels: Sequence[str]) -> list[str]:
    cells = []
    for level in levels:
        moved = (row.levels or {}).get(level)
        cells.append(MISSING if moved is None else f"{amount(moved['bytes'])} / {moved['messages']}")
        cells.append(MISSING if moved is None else f"{moved['bytes'] / row.bounds[level].bytes:.2f}")
    return [*cells, number(row.cpu_seconds, ".2f"), number(row.peak_bytes, ".0f", 1 / (1 << 20))]


def _needs(row: Row, levels: Sequence[str]) -> list[str]:
    bounds = [row.bounds[level] for level in levels]
    return [str(row.touched), str(row.union), *(f"{amount(round(one.bytes))}, {one.form}" for one in bounds)]


Cells = Callable[[Row], list[str]]
TIMES = ("median\nms", "± MAD\nms", "p99\nms", "of_limit", "vs gloo\nsparse", "vs own\ndense", "#wrong")


def _tables(rows: Sequence[Row]) -> Iterator[tuple[str, TextTable]]:
    """Titles and tables."""
    levels = list(rows[0].bounds)
    courses = {_course(row): row for row in rows}
    yield "Time of the slowest rank", _by_entrant(TIMES, rows, _times)
    needs = named_table(("rows of a rank", "touched", "union", *levels), keys=1)
    for name, row in courses.items():
        needs.add(name, *_needs(row, levels))
    yield "Bytes that the best form needs", needs
    columns = [f"{level}\n{what}" for level in levels for what in ("bytes / messages", "÷ best")]
    costs = _by_entrant((*columns, "CPU\ns", "memory\nMiB"), rows, lambda row: _costs(row, levels))
    yield "Cost of one go: busiest rank, machine, site", costs


def _by_entrant(columns: Sequence[str], rows: Sequence[Row], cells: Cells) -> TextTable:
    table = named_table(("rows of a rank", "backend", "form", *columns), keys=3)
    for place, row in enumerate(rows):
        if place and _course(rows[place - 1]) != _course(row):
            table.add_gap()
        table.add(_course(row), row.backend, row.form, *cells(row))
    return table


def show(facts: dict[str, Any], rows: Sequence[Row]) -> None:
    """rows: one or more."""
    print_heading(facts, f"table of {facts['rows']} x {facts['width']}, {facts['dtype']}")
    for title, table in _tables(rows):
        show_table(table, title)
    for text in facts["left_out"]:
        print(f"left out: {text}")
