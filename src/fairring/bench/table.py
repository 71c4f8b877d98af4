"""The tables for people. A column without any figure is left out. Columns as docs/bench.md explains them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairring import table
from fairring.bench.contestants import FLOOR, STOCK
from fairring.bench.rows import Row

MISSING = "-"

Column = tuple[str, Callable[[Row], str]]


def figure(head: str, name: str, form: str, scale: float = 1.0) -> Column:
    """A column of a row's figure: times have a scale of 1e3, in ms."""
    return head, lambda row: MISSING if row[name] is None else format(row[name] * scale, form)


def ratio(head: str, name: str) -> Column:
    return head, lambda row: MISSING if row[name] is None else f"{row[name]:.2f}x"


def amount(size_bytes: float) -> str:
    """With three digits and its unit: 13.1 MB."""
    for unit, scale in (("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def _moved(level: str) -> Column:
    def cell(row: Row) -> str:
        moved = (row["levels"] or {}).get(level)
        if not moved:
            return MISSING
        counts = [amount(moved["bytes"]), str(moved["messages"])]
        return " / ".join(counts if level == "machine" else [*counts, str(moved["sends"])])

    return f"{level}\nbytes / messages{' / sends' if level != 'machine' else ''}", cell


def _of_least(level: str) -> Column:
    def cell(row: Row) -> str:
        moved, least = (row["levels"] or {}).get(level), row["least_bytes"].get(level)
        return f"{moved['bytes'] / least:.3f}" if moved and least else MISSING

    return f"{level}\n÷ least", cell


KEYS: list[Column] = [("backend", lambda row: row["backend"]), ("form", lambda row: row["form"] or MISSING)]
TIMES: list[Column] = [
    ("rounds", lambda row: str(len(row["seconds"]))),
    figure("median\nms", "median", ".3f", 1e3),
    figure("± MAD\nms", "deviation", ".3f", 1e3),
    figure("p99\nms", "p99", ".3f", 1e3),
    figure("host\nms", "host", ".3f", 1e3),
    figure("algbw\nMB/s", "algorithm_bandwidth", ".4g", 1e-6),
    figure("busbw\nMB/s", "bus_bandwidth", ".4g", 1e-6),
    figure("of_limit", "of_limit", ".3f"),
    ratio("vs stock", "vs_stock"),
    figure("exchange\nms", "exchange", ".3f", 1e3),
    figure("± MAD\nms", "exchange_deviation", ".3f", 1e3),
    ratio("exchange\nvs stock", "exchange_vs_stock"),
    ratio("vs other\nform", "vs_other_form"),
    figure("#wrong", "wrong", ".0f"),
]
COSTS: list[Column] = [
    ("CPU\ns", lambda row: MISSING if row["size_bytes"] else f"{row['cpu_seconds']:.3g}"),
    figure("CPU\ns/GB", "cpu_seconds_per_gb", ".3g"),
    figure("memory\nMiB", "peak_bytes", ".1f", 1 / (1 << 20)),
    figure("of it shared\nMiB", "shared_bytes", ".1f", 1 / (1 << 20)),
    figure("device memory\nMiB", "device_peak_bytes", ".1f", 1 / (1 << 20)),
]


def show(key: str, rows: Sequence[Row]) -> None:
    """key: the figure that names a row's heat."""
    if not rows:
        return
    levels = list(dict.fromkeys(level for row in rows for level in row["levels"] or ()))
    moved = [column for level in levels for column in (_moved(level), _of_least(level))]
    keys: list[Column] = [(key, lambda row: row[key]), *KEYS]
    stock = next((row["backend"] for row in rows if row["backend"] in STOCK.values()), "")
    times = [(head.replace("stock", stock), cell) for head, cell in TIMES]
    table.show(make_table(keys, times, rows), "Time of the slowest rank")
    table.show(make_table(keys, [*moved, *COSTS], rows), "Cost of one go: busiest rank, machine, site; CPU of all")
    if any(row["backend"] == FLOOR for row in rows):
        print(f"\n{FLOOR} does nothing: its time is PyTorch's own part of every call.")
    print("docs/bench.md says what the columns mean.")


def make_table(keys: Sequence[Column], columns: Sequence[Column], rows: Sequence[Row]) -> table.Table:
    """A line is free where the first key changes."""
    told = [(head, cells) for head, cell in (*keys, *columns) if set(cells := [cell(row) for row in rows]) - {MISSING}]
    heads = [head for head, _ in told]
    made = table.Table(heads, sum(head in heads for head, _ in keys), left=[head for head, _ in keys[1:]])
    for at in range(len(rows)):
        line = [cells[at] for _, cells in told]
        if at and line[0] != told[0][1][at - 1]:
            made.add_gap()
        made.add(*line)
    return made
