"""The figures of `fairring bench plot`, drawn with matplotlib into files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from fairring.bench import series
from fairring.bench.contestants import FLOOR, STOCK
from fairring.bench.series import Lines, Result
from fairring.bench.sizes import format_size

matplotlib.use("Agg")  # files only: there may be no display
from matplotlib import pyplot

COLOURS = {STOCK: "#8a8f98", "fairring": "#d1495b", FLOOR: "#c9b458"}
STYLES = ("-", "--", ":", "-.")


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


def _latency(results: Sequence[Result]) -> Any:
    figure, axes = _curves(results, series.latency(series.of_collectives(results)), "ms, median of the slowest rank")
    if axes:
        axes.set(yscale="log")
        _by_size(axes)
    return figure


def _bandwidth(results: Sequence[Result]) -> Any:
    chosen = series.of_collectives(results)
    figure, axes = _curves(results, series.bandwidth(chosen), "MB/s, algorithm bandwidth")
    if axes:
        _by_size(axes)
        limits = {limit / 1e6 for one in chosen if (limit := series.limit(one))}
        if len(series.layouts(chosen)) == 1 and limits:
            _level(axes, max(limits), "limit of the link")
        axes.set_ylim(bottom=0)
    return figure


def _in_flight(results: Sequence[Result]) -> Any:
    lines = series.by_calls_in_flight(series.of_collectives(results))
    figure, axes = _curves(results, lines, "MB/s, algorithm bandwidth of all together")
    if axes:
        axes.set(xlabel=f"calls in flight, each of {_common(results)}")
        axes.set_ylim(bottom=0)
    return figure


def _scaling(results: Sequence[Result]) -> Any:
    lines = series.by_machines(series.of_collectives(results))
    figure, axes = _curves(results, lines, f"MB/s, algorithm bandwidth of {_common(results)}")
    if axes:
        axes.set(xlabel="machines")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(bottom=0)
    return figure


def _total_memory(results: Sequence[Result]) -> Any:
    lines, stock = series.by_slices_in_flight(results)
    figure, axes = _curves(results, lines, "MB/s, algorithm bandwidth")
    if axes:
        axes.set(xlabel="slices in flight, as FAIRRING_TOTAL_MEMORY allows")
        if stock is not None:
            _level(axes, stock, STOCK)
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
    speed = series.link(result)
    return str(result["conditions"]["layout"]) + (f"\n{speed * 8 / 1e9:.2g} Gbit/s" if speed else "")


def _common(results: Sequence[Result]) -> str:
    size = series.common_size(series.of_collectives(results))
    return format_size(size) if size else "no common size"


def _curves(results: Sequence[Result], lines: Lines, y: str) -> tuple[Any, Any]:
    """One curve per line with its spread; (None, None) if there is none."""
    if not lines:
        return None, None
    figure, axes = _axes(results, y)
    drawn: Counter[str] = Counter()  # by backend: they share a colour and differ in style
    for name, line in lines.items():
        style = "o" + STYLES[drawn[line.backend] % len(STYLES)]
        drawn[line.backend] += 1
        colour = COLOURS.get(line.backend)  # matplotlib's next for others
        axes.errorbar(line.x, line.y, line.spread, fmt=style, ms=3, capsize=2, color=colour, label=name)
    axes.legend(frameon=False, fontsize=8)
    return figure, axes


def _axes(results: Sequence[Result], y: str) -> tuple[Any, Any]:
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    facts = results[0]["conditions"]
    first = facts["machines"][0]
    layouts = "; ".join(series.layouts(results))
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
