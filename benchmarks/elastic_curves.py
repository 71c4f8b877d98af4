"""Draws loss and steps over time of the jobs that elastic.py has recorded, and prints what they have done in a table.

python benchmarks/elastic_curves.py elastic.svg undisturbed.json reconfigure.json torchrun.json torchft.json
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

COLOURS = {"undisturbed": "#9aa1ab", "reconfigure": "#2e86ab", "torchrun": "#c0392b", "torchft": "#d9902f"}
NAMES = {"torchrun": "torchrun restarts all", "torchft": "torchft over Gloo"}
LEFT, RIGHT, TOP = 60, 560, 40  # of the axes, in the picture's units
LOWEST = 0.003  # loss in the picture
SMOOTH = 25  # steps, of which a loss is the mean
SHOWN = 16  # every so many steps a point
STAND_SECONDS = 0.5  # a stand-still of which the picture has both ends


class Curve:
    """A job's steps that none before was as far as: without those that were done again."""

    def __init__(self, record: dict[str, Any], seconds: float) -> None:
        """seconds: the part of the record that counts."""
        self.job, self.record, self.until = record["job"], record, seconds
        self.kills = [kill for kill in record["kills"] if kill < seconds]
        self.seconds: list[float] = []
        self.steps: list[float] = []
        losses: list[float] = []
        for when, step, loss in record["steps"]:
            if when < seconds and (not self.steps or step > self.steps[-1]):
                self.seconds.append(when)
                self.steps.append(step)
                losses.append(loss)
        parts = (losses[max(0, at - SMOOTH + 1) : at + 1] for at in range(len(losses)))
        self.losses = [sum(part) / len(part) for part in parts]

    def longest_stand(self) -> float:
        return max(later - earlier for earlier, later in itertools.pairwise([*self.seconds, self.until]))

    def shown(self) -> list[int]:
        """The indices of the picture's points."""
        stands = (at for at in range(1, len(self.steps)) if self.seconds[at] - self.seconds[at - 1] > STAND_SECONDS)
        ends = {end for at in stands for end in (at - 1, at)}
        return sorted({*range(0, len(self.steps), SHOWN), len(self.steps) - 1, *ends})


@dataclass(frozen=True)
class Panel:
    """share: of the height that a value has."""

    title: str
    top: int
    seconds: float  # of the whole width
    share: Callable[[float], float]
    marks: Sequence[float]
    height: int = 200

    def x(self, seconds: float) -> float:
        return LEFT + (RIGHT - LEFT) * seconds / self.seconds

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - self.share(value))

    def grid(self, kills: Sequence[float]) -> Iterable[str]:
        yield f'<text x="10" y="{self.top - 14}">{self.title}</text>'
        for value in self.marks:
            yield f'<path d="M{LEFT} {self.y(value):.1f}H{RIGHT}" stroke="#e3e6ea"/>'
            yield f'<text x="{LEFT - 8}" y="{self.y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        for kill in kills:
            yield f'<path d="M{self.x(kill):.1f} {self.top}v{self.height}" stroke="#999" stroke-dasharray="2 4"/>'

    def line(self, curve: Curve, values: Sequence[float]) -> str:
        points = " ".join(f"{self.x(curve.seconds[at]):.1f},{self.y(values[at]):.1f}" for at in curve.shown())
        return f'<polyline points="{points}" {style(curve)}/>'


def style(curve: Curve) -> str:
    return f'fill="none" stroke-width="2" stroke="{COLOURS[curve.job]}"'


def key(curves: Sequence[Curve]) -> Iterable[str]:
    for index, curve in enumerate(curves):
        height = TOP + 20 + 24 * index
        yield f'<path d="M{RIGHT + 16} {height}h28" {style(curve)}/>'
        yield f'<text x="{RIGHT + 52}" y="{height + 4}">{NAMES.get(curve.job, curve.job)}</text>'
    height = TOP + 20 + 24 * len(curves)
    yield f'<path d="M{RIGHT + 30} {height - 8}v18" stroke="#999" stroke-dasharray="2 4"/>'
    yield f'<text x="{RIGHT + 52}" y="{height + 4}">a machine is killed</text>'


def draw(curves: Sequence[Curve]) -> str:
    seconds = math.floor(curves[0].until)
    most = max(curve.steps[-1] for curve in curves)
    losses = Panel(
        f"loss, mean of {SMOOTH} steps",
        TOP,
        seconds,
        lambda loss: min(1.0, math.log(loss / LOWEST) / math.log(1 / LOWEST)),
        (0.01, 0.1, 1),
    )
    steps = Panel("steps done", TOP + 250, seconds, lambda step: step / most, range(0, int(most) + 1, 500))
    kills = max((curve.kills for curve in curves), key=len)
    bottom = steps.top + steps.height
    size = 'viewBox="0 0 760 545" font-family="sans-serif" font-size="13" fill="#222"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>']
    lines += ["<title>Loss and steps over time of jobs whose machines are killed and replaced</title>"]
    lines += ['<rect width="760" height="545" fill="#fff"/>', *losses.grid(kills), *steps.grid(kills), *key(curves)]
    for when in range(0, seconds + 1, 20):
        lines += [f'<text x="{steps.x(when):.1f}" y="{bottom + 18}" text-anchor="middle">{when}</text>']
    lines += [f'<text x="{(LEFT + RIGHT) / 2}" y="{bottom + 40}" text-anchor="middle">seconds</text>']
    for curve in curves:
        lines += [losses.line(curve, curve.losses), steps.line(curve, curve.steps)]
    return "\n  ".join(lines) + "\n</svg>\n"


def table_of(curves: Sequence[Curve]) -> Table:
    table = Table("job", "killed", "steps", "of the first job's", "longest stand-still", "loss", "equal", "load")
    for curve in curves:
        figures = [f"{curve.steps[-1] / curves[0].steps[-1]:.2f}", f"{curve.longest_stand():.2f} s"]
        figures += [f"{curve.losses[-1]:.4f}", str(curve.record["equal"]), f"{curve.record['load']:.1f}"]
        table.add_row(curve.job, str(len(curve.kills)), f"{curve.steps[-1]:.0f}", *figures)
    return table


def main() -> None:
    picture, *records = map(Path, sys.argv[1:])
    found = [json.loads(path.read_text()) for path in records]
    seconds = min(record["seconds"] for record in found)
    curves = [Curve(record, seconds) for record in found]
    picture.write_text(draw(curves))
    Console(width=120).print(table_of(curves))


if __name__ == "__main__":
    main()
