"""Draws the calls of a few steps, rank by rank on one clock, from the traces of a job, as SVG.

Usage: python benchmarks/timeline.py DIR -o PICTURE.svg [--group NAME] [--first CALL] [--calls N]. A bar is a call, from
when its rank made it until it was over; its pale part is the time until the last rank had made it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairring.trace.clock import on_one_clock
from fairring.trace.files import largest, load
from fairring.trace.records import RankTrace

WIDTH, LEFT, TOP, BAR, GAP = 900, 90, 26, 9, 10
PALE, STRONG, LAST = "#f2c879", "#3b6ea5", "#c0392b"
LEGEND = (
    (PALE, "made, but not by all"),
    (STRONG, "under way on all ranks"),
    (LAST, "the same, made last by this rank"),
)
MOST_TICKS = 8


def calls_of(ranks: Sequence[RankTrace], first: int | None, count: int) -> list[int]:
    ended = set.intersection(*({n for n, call in one.calls.items() if call.ended is not None} for one in ranks))
    chosen = sorted(number for number in ended if first is None or number >= first)
    return chosen[:count] if first is not None else chosen[-count:]


def ticks(span: float) -> list[float]:
    """From zero on, by the least step of 1, 2 or 5 times a power of ten that leaves at most MOST_TICKS."""
    power = 10.0 ** math.floor(math.log10(span / MOST_TICKS))
    step = next(times * power for times in (1, 2, 5, 10) if span / (times * power) < MOST_TICKS)
    return [round(number * step, 9) for number in range(int(span / step) + 1)]


def rectangle(x: float, y: float, wide: float, high: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{colour}"/>'


def label(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def picture(ranks: Sequence[RankTrace], numbers: Sequence[int], lanes: int = 4) -> Iterator[str]:
    began = min(one.calls[number].submitted for one in ranks for number in numbers)
    ended = max(one.calls[number].ended or 0.0 for one in ranks for number in numbers)
    scale = (WIDTH - LEFT - 20) / (ended - began)
    band = lanes * BAR + GAP
    height = TOP + len(ranks) * band + 24
    size = f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    yield rectangle(0, 0, WIDTH, height, "white")
    for index, (colour, text) in enumerate(LEGEND):
        yield rectangle(LEFT + 180 * index, 6, 10, 10, colour)
        yield label(LEFT + 180 * index + 14, 15, text)
    for row, one in enumerate(ranks):
        top = TOP + row * band
        yield label(4, top + lanes * BAR / 2 + 4, one.who(one.rank))
        for index, number in enumerate(numbers):
            call, by_all = one.calls[number], max(other.calls[number].submitted for other in ranks)
            over = call.ended or ended
            for start, end, colour in (
                (call.submitted, by_all, PALE),
                (by_all, over, LAST if call.submitted == by_all else STRONG),
            ):
                place = (LEFT + (start - began) * scale, top + index % lanes * BAR)
                yield rectangle(*place, (end - start) * scale, BAR - 1, colour)
    for milliseconds in ticks((ended - began) * 1e3):
        yield label(LEFT + milliseconds / 1e3 * scale, height - 8, f"{milliseconds:g} ms", "middle")
    yield "</svg>"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--group")
    parser.add_argument("--first", type=int, help="number of the first call; the last ones if it is not given")
    parser.add_argument("--calls", type=int, default=12)
    arguments = parser.parse_args()
    ranks = on_one_clock(largest(load(arguments.directory), arguments.group))
    lines = picture(ranks, calls_of(ranks, arguments.first, arguments.calls))
    arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
