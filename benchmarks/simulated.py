"""Draws docs/figures/simulated.svg, the times of simulated calls, from the table of curves in docs/simulation.md."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
LEFT, RIGHT, TOP, BOTTOM = 70, 560, 50, 330  # of the axes, in the picture's units
MACHINES, MILLISECONDS = (8.0, 1024.0), (0.05, 1000.0)
COLOURS = {"10": "#888", "100": "#1f6f9f", "400": "#b3434f"}  # by Gbit/s
FLAT = "#d08a2e"


@dataclass(frozen=True)
class Curve:
    name: str  # as the column is headed: "25 MiB, 100 Gbit/s"
    points: tuple[tuple[float, float], ...]  # machines, milliseconds

    @property
    def style(self) -> str:
        size, _, rate = self.name.partition(", ")
        dashes = ' stroke-dasharray="6 4"' if size.endswith("4 KiB") else ""
        colour = FLAT if size.startswith("flat") else COLOURS[rate.split()[0]]
        return f'stroke="{colour}"{dashes}'


def curves() -> list[Curve]:
    """The curves of the table, one for each column. A dash was not simulated."""
    table = (DOCS / "simulation.md").read_text().partition("## Curves\n")[2].partition("\n|")[2].partition("\n\n")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
    head, _, *rows = lines
    return [
        Curve(name, tuple((float(row[0]), float(row[column])) for row in rows if row[column] != "-"))
        for column, name in enumerate(head)
        if column > 0
    ]


def _at(value: float, low_high: tuple[float, float], start: int, end: int) -> float:
    low, high = low_high
    return start + (end - start) * math.log(value / low) / math.log(high / low)


def _x(machines: float) -> float:
    return _at(machines, MACHINES, LEFT, RIGHT)


def _y(milliseconds: float) -> float:
    return _at(milliseconds, MILLISECONDS, BOTTOM, TOP)


def _grid() -> Iterable[str]:
    for machines in (2**power for power in range(3, 11)):
        yield f'<path d="M{_x(machines):.1f} {TOP}V{BOTTOM}" stroke="#e3e6ea"/>'
        yield f'<text x="{_x(machines):.1f}" y="{BOTTOM + 18}" text-anchor="middle">{machines}</text>'
    for milliseconds in (0.1, 1, 10, 100, 1000):
        yield f'<path d="M{LEFT} {_y(milliseconds):.1f}H{RIGHT}" stroke="#e3e6ea"/>'
        yield f'<text x="{LEFT - 8}" y="{_y(milliseconds) + 4:.1f}" text-anchor="end">{milliseconds:g}</text>'
    yield f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 40}" text-anchor="middle">machines of 8 ranks</text>'
    yield f'<text x="{LEFT - 50}" y="{TOP - 20}">ms of an all-reduce</text>'


def _drawn(curve: Curve, index: int) -> Iterable[str]:
    line = " ".join(f"{_x(machines):.1f},{_y(milliseconds):.1f}" for machines, milliseconds in curve.points)
    yield f'<polyline points="{line}" fill="none" stroke-width="2" {curve.style}/>'
    height = TOP + 20 + 24 * index
    yield f'<path d="M{RIGHT + 16} {height}h28" stroke-width="2" {curve.style}/>'
    yield f'<text x="{RIGHT + 52}" y="{height + 4}">{curve.name}</text>'


def draw() -> str:
    size = 'viewBox="0 0 780 390" font-family="sans-serif" font-size="13" fill="#222"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>']
    lines += ["<title>Simulated time of an all-reduce by the number of machines</title>"]
    lines += ['<rect width="780" height="390" fill="#fff"/>', *_grid()]
    for index, curve in enumerate(curves()):
        lines += _drawn(curve, index)
    return "\n  ".join(lines) + "\n</svg>\n"


if __name__ == "__main__":
    (DOCS / "figures" / "simulated.svg").write_text(draw())
