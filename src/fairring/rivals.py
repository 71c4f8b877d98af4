"""The time that a ring or a tree over all ranks would take across sites, by the planner's own cost rows, to compare.

Both are laid as NCCL lays them: ranks in order, site after site. So a ring crosses each site's uplink once in and once
out, and trees are built in each site and their roots chained. One connection crosses between two sites; if it is
scattered, all machines of a site carry a part of it. Sums are left out. docs/algorithms.md derives the terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fairring.cost_rows import Row


@dataclass(frozen=True)
class Shape:
    """Equal machines of equal sites, or the smallest of unequal ones."""

    sites: int
    machines: int  # in all
    ranks: int  # in all

    def __post_init__(self) -> None:
        if self.sites < 2:
            raise ValueError(f"a comparison across sites needs 2 or more, not {self.sites}")


@dataclass(frozen=True)
class Rival:
    """site_trips: one-way trips between sites of a small call, one after the other. site_bytes: of a site, each way."""

    name: str
    seconds: float
    site_trips: int
    site_bytes: float


def rivals(shape: Shape, rows: Sequence[Row], call_bytes: int) -> list[Rival]:
    """rows: by level, the bandwidths a rank's share."""
    return [make(shape, rows, call_bytes, scattered) for make in (_ring, _tree) for scattered in (False, True)]


def _ring(shape: Shape, rows: Sequence[Row], call_bytes: int, scattered: bool) -> Rival:
    """Every piece goes round twice, past all edges but one; the slowest edge decides large calls."""
    edges = (shape.ranks - shape.machines, shape.machines - shape.sites, shape.sites)
    latency = 2 * sum(count * (row[0] + row[1]) for count, row in zip(edges, rows, strict=True))
    moved = 2 * call_bytes * (shape.ranks - 1) / shape.ranks
    seconds = latency + moved / min(rows[0][2], _network(shape, rows), _crossing(shape, rows, scattered))
    return Rival(_name("ring", scattered), seconds, 2 * shape.sites, moved)


def _tree(shape: Shape, rows: Sequence[Row], call_bytes: int, scattered: bool) -> Rival:
    """Up and down; the sites in the middle of a chain also pass on the others' sums."""
    per_site = shape.machines / shape.sites
    depths = (shape.ranks / shape.machines - 1, math.log2(per_site), shape.sites - 1)
    latency = 2 * sum(depth * (row[0] + row[1]) for depth, row in zip(depths, rows, strict=True))
    moved = float(call_bytes if shape.sites == 2 else 2 * call_bytes)
    inside = 2 * call_bytes / min(rows[0][2], _network(shape, rows))
    seconds = latency + max(moved / _crossing(shape, rows, scattered), inside)
    return Rival(_name("tree", scattered), seconds, 2 * (shape.sites - 1), moved)


def _name(kind: str, scattered: bool) -> str:
    return f"{kind}, scattered" if scattered else kind


def _network(shape: Shape, rows: Sequence[Row]) -> float:
    """Bytes/s of a machine's network, each way: all its ranks' shares."""
    return rows[1][2] * shape.ranks / shape.machines


def _crossing(shape: Shape, rows: Sequence[Row], scattered: bool) -> float:
    """Bytes/s between two sites: of the uplink, or of the cards of the machines that use it."""
    machines = shape.machines / shape.sites if scattered else 1
    return min(rows[2][2] * shape.ranks / shape.sites, machines * _network(shape, rows))
