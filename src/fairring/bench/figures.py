"""The figures of `fairring bench plot`, drawn with matplotlib into files: a line for each backend and layout."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from fairring.bench.collectives import ALL_REDUCE, BARRIER, COLLECTIVES
from fairring.bench.contestants import FLOOR, STOCK
from fairring.bench.sizes import format_size

matplotlib.use("Agg")  # files only: there may be no display
from matplotlib import pyplot

COLOURS = {STOCK: "#8a8f98", "fairring": "#d1495b", FLOOR: "#c9b458"}
STYLES = ("-", "--", ":", "-.")

Result = dict[str, Any]  # as results.read() returns it
Row = dict[str, Any]
Lines = dict[tuple[str, str], list[tuple[float, float, float]]]  # by backend and group: x, y, and y's spread


def draw(results: Sequence[Result], folder: Path, form: str) -> list[Path]:
    """Every figure that the results allow; returns the files."""
    drawn = []
    for name, make in FIGURES.items():
        figure = make(results)
        if figure is not None:
            file = folder / f"{name}.{form}"
            figure.savefig(file, dpi=150)
            pyplot.close(figure)
            drawn.append(file)
    return drawn


def link(result: Result) -> float | None:
    """Bytes/s of the slowest machine, as used for of_limit."""
    speeds = [min(one["sent"] + one["received"]) for one in result["conditions"]["link_bytes_per_second"]]
    return max(speeds, default=None)


def _of_collectives(results: Sequence[Result]) -> list[Result]:
    """Without barriers, which have no size."""
    drawn = COLLECTIVES.keys() - {BARRIER}
    return [one for one in results if one["benchmark"] in drawn and not one["conditions"]["sweep"]]


def _layout(result: Result) -> str:
    """As figures name it, with the collective unless it is an all-reduce."""
    return _with_collective(result, str(result["conditions"]["layout"]))


def _kind_of_machines(result: Result) -> str:
    counts = result["conditions"]["ranks_of_machines"]
    return _with_collective(result, f"{counts[0]} ranks each" if len(set(counts)) == 1 else "unequal machines")


def _with_collective(result: Result, text: str) -> str:
    benchmark = result["benchmark"]
    return f"{benchmark}, {text}" if benchmark in COLLECTIVES and benchmark != ALL_REDUCE else text


def _machines(result: Result) -> int:
    return len(result["conditions"]["ranks_of_machines"])


def _limit(result: Result) -> float | None:
    """The algorithm bandwidth that the link allows, bytes/s."""
    speed, share = link(result), COLLECTIVES[result["benchmark"]].link_share(result["conditions"]["ranks_of_machines"])
    return speed / share if speed and share else None


def _common_size(results: Sequence[Result]) -> int | None:
    """The largest size that is in all of them."""
    sizes = [{row["size_bytes"] for row in one["rows"]} for one in results]
    return max(set.intersection(*sizes), default=None) if sizes else None


def _at_common_size(results: Sequence[Result]) -> list[Result]:
    size = _common_size(results)
    return [{**one, "rows": [row for row in one["rows"] if row["size_bytes"] == size]} for one in results]


def _milliseconds(row: Row) -> tuple[float, float]:
    return row["median"] * 1e3, row["deviation"] * 1e3


def _megabytes(row: Row) -> tuple[float, float] | None:
    """MB/s."""
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
    several = len({group_of(one) for one in results}) > 1
    lines: Lines = defaultdict(list)
    for one in results:
        for row in one["rows"]:
            if point := y_of(row):
                lines[row["backend"], group_of(one) if several else ""].append((x_of(one, row), *point))
    return lines


def _latency(results: Sequence[Result]) -> Any:
    lines = _lines(_of_collectives(results), lambda _, row: row["size_bytes"], _milliseconds)
    figure, axes = _curves(results, lines, "ms, median of the slowest rank")
    if axes:
        axes.set(yscale="log")
        _by_size(axes)
    return figure


def _bandwidth(results: Sequence[Result]) -> Any:
    chosen = _of_collectives(results)
    lines = _lines(chosen, lambda _, row: row["size_bytes"], _megabytes)
    figure, axes = _curves(results, lines, "MB/s, algorithm bandwidth")
    if axes:
        _by_size(axes)
        limits = {limit / 1e6 for one in chosen if (limit := _limit(one))}
        if len({_layout(one) for one in chosen}) == 1 and limits:
            _level(axes, max(limits), "limit of the link")
        axes.set_ylim(bottom=0)
    return figure


def _in_flight(results: Sequence[Result]) -> Any:
    chosen = _of_collectives(results)
    lines = _lines(_at_common_size(chosen), lambda _, row: row["in_flight"], _megabytes)
    if len({one["conditions"]["in_flight"] for one in chosen}) < 2:
        return None
    figure, axes = _curves(results, lines, "MB/s, algorithm bandwidth of all together")
    if axes:
        axes.set(xlabel=f"calls in flight, each of {_common(results)}")
        axes.set_ylim(bottom=0)
    return figure


def _scaling(results: Sequence[Result]) -> Any:
    chosen = _of_collectives(results)
    if len({_machines(one) for one in chosen}) < 2:
        return None
    lines = _lines(_at_common_size(chosen), lambda one, _: _machines(one), _megabytes, _kind_of_machines)
    figure, axes = _curves(results, lines, f"MB/s, algorithm bandwidth of {_common(results)}")
    if axes:
        axes.set(xlabel="machines")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(bottom=0)
    return figure


def _total_memory(results: Sequence[Result]) -> Any:
    """By slices that the staging holds; the stock backend has none."""
    swept = [one for one in results if one["benchmark"] == ALL_REDUCE and one["conditions"]["sweep"]]
    stock = [row["algorithm_bandwidth"] / 1e6 for one in swept for row in one["rows"] if not row["plan"]]
    lines: Lines = defaultdict(list)
    for one in swept:
        for row in one["rows"]:
            if row["plan"]:
                lines["fairring", _layout(one)].append((row["plan"]["in_flight"], *(_megabytes(row) or (0.0, 0.0))))
    figure, axes = _curves(results, lines, "MB/s, algorithm bandwidth")
    if axes:
        axes.set(xlabel="slices in flight, as FAIRRING_TOTAL_MEMORY allows")
        if stock:
            _level(axes, max(stock), STOCK)
        axes.set_ylim(bottom=0)
    return figure


def _ddp(results: Sequence[Result]) -> Any:
    chosen = [one for one in results if one["benchmark"] == "ddp"]
    if not chosen:
        return None
    figure, axes = _axes(chosen, "ms per step, median of the slowest rank")
    labels: list[str] = []
    for result in chosen:
        for row in result["rows"]:
            place, exchange = len(labels), row["communication"] or 0.0
            labels.append(row["backend"] if len(chosen) == 1 else f"{row['backend']}\n{_where(result)}")
            colour = COLOURS.get(row["backend"], "black")
            axes.bar(place, (row["median"] - exchange) * 1e3, color=colour, alpha=0.4, width=0.6)
            axes.bar(place, exchange * 1e3, bottom=(row["median"] - exchange) * 1e3, color=colour, width=0.6)
            steps = [seconds * 1e3 for seconds in row["seconds"]]
            axes.scatter([place] * len(steps), steps, s=6, color="black", alpha=0.3)
    axes.set(xticks=range(len(labels)), xticklabels=labels)
    axes.set_xlabel("dark: the communication part; dots: all steps")
    return figure


def _where(result: Result) -> str:
    speed = link(result)
    return str(result["conditions"]["layout"]) + (f"\n{speed * 8 / 1e9:.2g} Gbit/s" if speed else "")


def _common(results: Sequence[Result]) -> str:
    size = _common_size(_of_collectives(results))
    return format_size(size) if size else "no common size"


def _curves(results: Sequence[Result], lines: Lines, y: str) -> tuple[Any, Any]:
    """One curve per line with its spread; (None, None) if there is none."""
    if not lines:
        return None, None
    figure, axes = _axes(results, y)
    drawn: Counter[str] = Counter()  # by backend: they share a colour and differ in style
    for (backend, group), points in lines.items():
        style = "o" + STYLES[drawn[backend] % len(STYLES)]
        drawn[backend] += 1
        colour = COLOURS.get(backend)  # matplotlib's next for others
        columns = zip(*sorted(points), strict=True)
        label = f"{backend}, {group}" if group else backend
        axes.errorbar(*columns, fmt=style, ms=3, capsize=2, color=colour, label=label)
    axes.legend(frameon=False, fontsize=8)
    return figure, axes


def _axes(results: Sequence[Result], y: str) -> tuple[Any, Any]:
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    facts = results[0]["conditions"]
    first = facts["machines"][0]
    layouts = "; ".join(dict.fromkeys(map(_layout, results)))
    versions = f"torch {facts['versions']['torch']}, fairring {facts['versions']['fairring']}"
    figure.suptitle(
        f"{layouts}. {versions}, {first['cores']} cores, load {first['load'][0]:.1f}", fontsize=8, wrap=True
    )
    return figure, axes


def _level(axes: Any, y: float, text: str) -> None:
    axes.axhline(y, color="black", lw=0.8, ls=":")
    axes.annotate(text, (0.01, y), xycoords=("axes fraction", "data"), fontsize=8, va="bottom")


def _by_size(axes: Any) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlabel("size")
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size(int(size))))


FIGURES: dict[str, Callable[[Sequence[Result]], Any]] = {
    "latency": _latency,
    "bandwidth": _bandwidth,
    "in-flight": _in_flight,
    "scaling": _scaling,
    "total-memory": _total_memory,
    "ddp": _ddp,
}
