"""The tables for people: one of the times, one of the costs. Columns as docs/bench.md explains them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairring.bench.rows import Row
from fairring.bench.sizes import format_size
from fairring.table import Table

MISSING = "-"

Cell = Callable[[Row], str]


def number(value: float | None, form: str, scale: float = 1.0) -> str:
    return MISSING if value is None else format(value * scale, form)


def amount(size_bytes: int) -> str:
    """With three digits and its unit: 13.1 MB."""
    for unit, scale in (("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.3g} {unit}"
    return f"{size_bytes} B"


def _plan(row: Row) -> str:
    return MISSING if row.plan is None else str(row.plan["steps"])


def _predicted(row: Row) -> str:
    return MISSING if row.plan is None else number(row.plan["seconds"], ".3f", 1e3)


def _moved(row: Row, level: str) -> str:
    moved = (row.levels or {}).get(level)
    if moved is None:
        return MISSING
    counts = [amount(moved["bytes"]), str(moved["messages"]), *([str(moved["sends"])] if level != "machine" else [])]
    return " / ".join(counts)


TIMES: tuple[tuple[str, Cell], ...] = (
    ("size", lambda row: format_size(row.size_bytes)),
    ("backend", lambda row: row.backend),
    ("rounds", lambda row: str(len(row.seconds))),
    ("median\nms", lambda row: number(row.median, ".3f", 1e3)),
    ("± MAD\nms", lambda row: number(row.deviation, ".3f", 1e3)),
    ("p99\nms", lambda row: number(row.p99, ".3f", 1e3)),
    ("algbw\nMB/s", lambda row: number(row.algorithm_bandwidth, ".4g", 1e-6)),
    ("busbw\nMB/s", lambda row: number(row.bus_bandwidth, ".4g", 1e-6)),
    ("of_limit", lambda row: number(row.of_limit, ".3f")),
    ("vs gloo", lambda row: MISSING if row.vs_stock is None else f"{row.vs_stock:.2f}x"),
    ("#wrong", lambda row: MISSING if row.wrong is None else str(row.wrong)),
)
COSTS: tuple[tuple[str, Cell], ...] = (
    ("size", lambda row: format_size(row.size_bytes)),
    ("backend", lambda row: row.backend),
    ("machine\nbytes / messages", lambda row: _moved(row, "machine")),
    ("rail\nbytes / messages / sends", lambda row: _moved(row, "rail")),
    ("site\nbytes / messages / sends", lambda row: _moved(row, "site")),
    ("CPU\ns/GB", lambda row: number(row.cpu_seconds_per_gb, ".3g")),
    ("memory\nMiB", lambda row: number(row.peak_bytes, ".1f", 1 / (1 << 20))),
    ("of it shared\nMiB", lambda row: number(row.shared_bytes, ".1f", 1 / (1 << 20))),
    ("plan", _plan),
    ("predicted\nms", _predicted),
)


def make_table(columns: Sequence[tuple[str, Cell]], rows: Sequence[Row]) -> Table:
    """A table with a free line between sizes and the backends of one size together."""
    table = named_table([name for name, _ in columns])
    for place, row in enumerate(rows):
        if place and rows[place - 1].size_bytes != row.size_bytes:
            table.add_gap()
        table.add(*(cell(row) for _, cell in columns))
    return table


def named_table(columns: Sequence[str], keys: int = 2) -> Table:
    """A table whose first columns, the keys, hold names: the second is the backend's."""
    return Table(columns, keys, left=["backend"])
