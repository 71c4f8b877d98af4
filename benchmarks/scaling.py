"""Bus bandwidth by the number of machines, as the planner predicts it: `python benchmarks/scaling.py FILE.svg`

Machines of 8 ranks with the built-in row of RDMA; the choice beside plain two-shot, the only plan of the project of the
same name that Facebook published, and beside what its README plots. Predictions are of one all-reduce; that project
measured 64 in flight. They are other machines: compare the shapes, not the heights. Needs no cluster.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairring.plan import add_arguments, predict

RANKS = 8
MACHINES = [2**power for power in range(3, 11)]
TWO_SHOT = "RS0 RS1 AG1 AG0"
# Milliseconds of 64 all-reduces of 25 MiB, read off the curve "Fairring" of the figure under "Scaling" in the README of
# github.com/facebookresearch/fairring: 8 to 256 V100 GPUs, 8 per machine, InfiniBand.
PUBLISHED_MS = {1: 39.5, 2: 64.3, 4: 85.0, 8: 109.1, 16: 135.3, 32: 262.1}
PUBLISHED_BYTES = 64 * 25 << 20

LEFT, RIGHT, TOP, BOTTOM = 70, 560, 30, 330  # of the axes, in the picture's units
X_RANGE, Y_RANGE = (1.0, 1024.0), (0.05, 100.0)


@dataclass(frozen=True)
class Curve:
    name: str
    style: str
    points: Sequence[tuple[int, float]]  # machines, GB/s


def bus_bandwidth(size_bytes: int, seconds: float, world: int) -> float:
    """GB/s, size/t * 2(P-1)/P as nccl-tests defines it."""
    return size_bytes / seconds * 2 * (world - 1) / world / 1e9


def predicted(size: str, *, two_shot: bool) -> list[tuple[int, float]]:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    points = []
    for machines in MACHINES:
        words = ["--machines", str(machines), "--ranks", str(RANKS), "--bytes", size, "--transport", "ibv"]
        plans = predict(parser.parse_args(words), flat=two_shot)
        plan = next(plan for plan in plans if not two_shot or plan["steps"] == TWO_SHOT)
        size_bytes = int(size.removesuffix("MiB")) << 20
        points.append((machines, bus_bandwidth(size_bytes, plan["seconds"], machines * RANKS)))
        print(f"{machines:5} machines, {size}: {points[-1][1]:7.3f} GB/s, {plan['steps']}")
    return points


def curves() -> list[Curve]:
    measured = [
        (machines, bus_bandwidth(PUBLISHED_BYTES, ms / 1e3, machines * RANKS)) for machines, ms in PUBLISHED_MS.items()
    ]
    found = [Curve("facebookresearch/fairring, measured", 'stroke="#888" stroke-dasharray="2 3"', measured)]
    for size, colour in (("400MiB", "#1f6f9f"), ("25MiB", "#b3434f")):
        spaced = size.replace("MiB", " MiB")
        found.append(Curve(f"{spaced}, the choice", f'stroke="{colour}"', predicted(size, two_shot=False)))
        style = f'stroke="{colour}" stroke-dasharray="6 4"'
        found.append(Curve(f"{spaced}, two-shot alone", style, predicted(size, two_shot=True)))
    return found


def _at(value: float, low_high: tuple[float, float], start: int, end: int) -> float:
    low, high = low_high
    return start + (end - start) * math.log(value / low) / math.log(high / low)


def _x(machines: float) -> float:
    return _at(machines, X_RANGE, LEFT, RIGHT)


def _y(bandwidth: float) -> float:
    return _at(bandwidth, Y_RANGE, BOTTOM, TOP)


def _grid() -> Iterable[str]:
    for machines in (2**power for power in range(11)):
        yield f'<path d="M{_x(machines):.1f} {TOP}V{BOTTOM}" stroke="#e3e6ea"/>'
        yield f'<text x="{_x(machines):.1f}" y="{BOTTOM + 18}" text-anchor="middle">{machines}</text>'
    for bandwidth in (0.1, 1, 10, 100):
        yield f'<path d="M{LEFT} {_y(bandwidth):.1f}H{RIGHT}" stroke="#e3e6ea"/>'
        yield f'<text x="{LEFT - 8}" y="{_y(bandwidth) + 4:.1f}" text-anchor="end">{bandwidth:g}</text>'
    yield f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 40}" text-anchor="middle">machines of {RANKS} ranks</text>'
    yield f'<text x="{LEFT - 50}" y="{TOP - 12}">bus bandwidth, GB/s</text>'


def _drawn(curve: Curve, index: int) -> Iterable[str]:
    line = " ".join(f"{_x(machines):.1f},{_y(bandwidth):.1f}" for machines, bandwidth in curve.points)
    yield f'<polyline points="{line}" fill="none" stroke-width="2" {curve.style}/>'
    height = TOP + 20 + 24 * index
    yield f'<path d="M{RIGHT + 16} {height}h28" stroke-width="2" {curve.style}/>'
    yield f'<text x="{RIGHT + 52}" y="{height + 4}">{curve.name}</text>'


def picture(found: Sequence[Curve]) -> str:
    size = 'viewBox="0 0 860 390" font-family="sans-serif" font-size="13" fill="#222"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>']
    lines += ["<title>Predicted bus bandwidth by the number of machines</title>"]
    lines += ['<rect width="860" height="390" fill="#fff"/>', *_grid()]
    for index, curve in enumerate(found):
        lines += _drawn(curve, index)
    return "\n  ".join(lines) + "\n</svg>\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE.svg")
    parser.parse_args().file.write_text(picture(curves()))


if __name__ == "__main__":
    main()
