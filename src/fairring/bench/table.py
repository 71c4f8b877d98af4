"""The tables for people: columns of any rows, and those of collectives. Columns as docs/bench.md explains them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fairring.bench.sizes import format_size
from fairring.table import Table

MISSING = "-"

Columns = Sequence[tuple[str, Callable[[Any], str]]]


def number(value: float | None, form: str, scale: float = 1.0) -> str:
    return MISSING if value is None else format(value * scale, form)


def figure(head: str, name: str, form: str, scale: float = 1.0) -> tuple[str, Callable[[Any], str]]:
    """A column of a row's field: times have a scale of 1e3, in ms."""
    return head, lambda row: number(getattr(row, name), form, scale)


def ratio(head: str, name: str) -> tuple[str, Callable[[Any], str]]:
    return head, lambda row: factor(getattr(row, name))


def factor(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}x"


def amount(size_bytes: int) -> str:
    """With three digits and its unit: 13.1 MB."""
    for unit, scale in (("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.3g} {unit}"
    return f"{size_bytes} B"


def _moved(row: Any, level: str) -> str:
    moved = (row.levels or {}).get(level)
    if moved is None:
        return MISSING
    counts = [amount(moved["bytes"]), str(moved["messages"]), *([str(moved["sends"])] if level != "machine" else [])]
    return " / ".join(counts)


BACKEND = ("backend", lambda row: row.backend)
WRONG = figure("#wrong", "wrong", ".0f")
SIZE = ("size", lambda row: format_size(row.size_bytes))
TIMES: Columns = (
    SIZE,
    BACKEND,
    ("rounds", lambda row: str(len(row.seconds))),
    figure("median\nms", "median", ".3f", 1e3),
    figure("± MAD\nms", "deviation", ".3f", 1e3),
    figure("p99\nms", "p99", ".3f", 1e3),
    figure("algbw\nMB/s", "algorithm_bandwidth", ".4g", 1e-6),
    figure("busbw\nMB/s", "bus_bandwidth", ".4g", 1e-6),
    figure("of_limit", "of_limit", ".3f"),
    ratio("vs gloo", "vs_stock"),
    WRONG,
)
COSTS: Columns = (
    SIZE,
    BACKEND,
    ("machine\nbytes / messages", lambda row: _moved(row, "machine")),
    ("rail\nbytes / messages / sends", lambda row: _moved(row, "rail")),
    ("site\nbytes / messages / sends", lambda row: _moved(row, "site")),
    figure("CPU\ns/GB", "cpu_seconds_per_gb", ".3g"),
    figure("memory\nMiB", "peak_bytes", ".1f", 1 / (1 << 20)),
    figure("of it shared\nMiB", "shared_bytes", ".1f", 1 / (1 << 20)),
    ("plan", lambda row: str(row.plan["steps"]) if row.plan else MISSING),
    ("predicted\nms", lambda row: number(row.plan["seconds"] if row.plan else None, ".3f", 1e3)),
)


def make_table(columns: Columns, rows: Sequence[Any], keys: int = 2, apart: bool = True) -> Table:
    """A table whose first columns, the keys, name a row. apart: a line is free where the first key changes."""
    table = Table([head for head, _ in columns], keys, left=["backend"])
    before = None
    for row in rows:
        cells = [cell(row) for _, cell in columns]
        if apart and before not in (None, cells[0]):
            table.add_gap()
        before = cells[0]
        table.add(*cells)
    return table
