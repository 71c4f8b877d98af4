"""From results to the content of a figure: points of each line, in their order. No drawing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairring.bench.collectives import ALL_REDUCE, BARRIER, COLLECTIVES

Result = dict[str, Any]  # as results.read() returns it
Row = dict[str, Any]
Lines = dict[str, "Line"]


@dataclass
class Line:
    """Points by ascending x. spread: of each y, up and down."""

    backend: str
    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)


def of_collectives(results: Sequence[Result]) -> list[Result]:
    """Without barriers, which have no size."""
    drawn = COLLECTIVES.keys() - {BARRIER}
    return [one for one in results if one["benchmark"] in drawn and not one["conditions"]["sweep"]]


def layouts(results: Sequence[Result]) -> list[str]:
    """As figures name them, with the collective unless it is an all-reduce."""
    return list(dict.fromkeys(_layout(one) for one in results))


def _layout(result: Result) -> str:
    return _with_collective(result, str(result["conditions"]["layout"]))


def _with_collective(result: Result, text: str) -> str:
    benchmark = result["benchmark"]
    return f"{benchmark}, {text}" if benchmark in COLLECTIVES and benchmark != ALL_REDUCE else text


def machines(result: Result) -> int:
    return len(result["conditions"]["ranks_of_machines"])


def link(result: Result) -> float | None:
    """Bytes/s of the slowest machine, as used for of_limit."""
    speeds = [min(one["sent"] + one["received"]) for one in result["conditions"]["link_bytes_per_second"]]
    return max(speeds, default=None)


def limit(result: Result) -> float | None:
    """The algorithm bandwidth that the link allows, bytes/s."""
    speed, share = link(result), COLLECTIVES[result["benchmark"]].link_share(result["conditions"]["ranks_of_machines"])
    return speed / share if speed and share else None


def latency(results: Sequence[Result]) -> Lines:
    """Milliseconds by bytes."""
    return _lines(results, lambda _, row: row["size_bytes"], lambda row: (row["median"] * 1e3, row["deviation"] * 1e3))


def bandwidth(results: Sequence[Result]) -> Lines:
    """MB/s by bytes."""
    return _lines(results, lambda _, row: row["size_bytes"], _bandwidth)


def by_calls_in_flight(results: Sequence[Result]) -> Lines:
    """MB/s by calls at once, for the size that most of the results have in common; nothing with one number of calls."""
    several = len({one["conditions"]["in_flight"] for one in results}) > 1
    return _lines(_at_common_size(results), lambda _, row: row["in_flight"], _bandwidth) if several else {}


def by_machines(results: Sequence[Result]) -> Lines:
    """MB/s by machines, for the largest common size; empty if all have as many."""
    several = len({machines(one) for one in results}) > 1
    chosen = _at_common_size(results)
    return _lines(chosen, lambda one, _: machines(one), _bandwidth, _kind_of_machines) if several else {}


def by_slices_in_flight(results: Sequence[Result]) -> tuple[Lines, float | None]:
    """MB/s by slices that the staging holds, and the stock backend's, which has none."""
    swept = [one for one in results if one["benchmark"] == ALL_REDUCE and one["conditions"]["sweep"]]
    rows = [(one, row) for one in swept for row in one["rows"]]
    stock = [row["algorithm_bandwidth"] / 1e6 for _, row in rows if not row["plan"]]
    lines: Lines = {}
    for one, row in rows:
        if row["plan"]:
            y, spread = _bandwidth(row) or (0.0, 0.0)
            name = f"fairring, {one['conditions']['layout']}"
            _add(lines.setdefault(name, Line("fairring")), row["plan"]["in_flight"], y, spread)
    return _sorted(lines), max(stock, default=None)


def common_size(results: Sequence[Result]) -> int | None:
    """The largest size that is in all of them."""
    sizes = [{row["size_bytes"] for row in one["rows"]} for one in results]
    return max(set.intersection(*sizes), default=None) if sizes else None


def _at_common_size(results: Sequence[Result]) -> list[Result]:
    size = common_size(results)
    return [{**one, "rows": [row for row in one["rows"] if row["size_bytes"] == size]} for one in results]


def _kind_of_machines(result: Result) -> str:
    counts = result["conditions"]["ranks_of_machines"]
    return _with_collective(result, f"{counts[0]} ranks each" if len(set(counts)) == 1 else "unequal machines")


def _bandwidth(row: Row) -> tuple[float, float] | None:
    if row["algorithm_bandwidth"] is None:
        return None
    y = row["algorithm_bandwidth"] / 1e6
    return y, y * row["deviation"] / row["median"]


def _lines(
    results: Sequence[Result],
    x_of: Callable[[Result, Row], float],
    y_of: Callable[[Row], tuple[float, float] | None],
    group_of: Callable[[Result], str] = _layout,
) -> Lines:
    """A line for each backend and group; the group is named if there are several."""
    groups = {group_of(one) for one in results}
    lines: Lines = {}
    for one in results:
        for row in one["rows"]:
            point = y_of(row)
            if point is not None:
                name = row["backend"] if len(groups) == 1 else f"{row['backend']}, {group_of(one)}"
                _add(lines.setdefault(name, Line(row["backend"])), x_of(one, row), *point)
    return _sorted(lines)


def _add(line: Line, x: float, y: float, spread: float) -> None:
    line.x.append(x)
    line.y.append(y)
    line.spread.append(spread)


def _sorted(lines: Lines) -> Lines:
    ordered: Lines = {}
    for name, line in lines.items():
        points = sorted(zip(line.x, line.y, line.spread, strict=True))
        ordered[name] = Line(line.backend, *(list(column) for column in zip(*points, strict=True)))
    return ordered
