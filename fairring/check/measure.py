"""Latency and bandwidth of each level, as Fairring's own all-reduce has them: in groups that have that level alone.

All groups of a level are measured at once, as they work at once in a real all-reduce, so a rank's bandwidth is its
share. The slowest rank's median counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

SMALL_BYTES, LARGE_BYTES = 4, 16 << 20
ROUNDS_SMALL, ROUNDS_LARGE, WARM_UP = 50, 7, 3


@dataclass(frozen=True)
class Measured:
    """Of one level. peers: the largest group's."""

    level: str
    ranks: int
    latency_seconds: float  # of an all-reduce of 4 B
    seconds: float  # of one of 16 MiB
    bytes_per_second: float  # of one rank, each way

    def as_dict(self) -> dict[str, float | int | str]:
        return dict(vars(self))


def groups_of(machines: Sequence[str]) -> dict[str, list[list[int]]]:
    """Ranks by level: those of each machine, and those with the same place on every machine that has one.

    machines: of each rank. Groups of one rank are left out, and levels without any.
    """
    names = sorted(set(machines), key=list(machines).index)
    locals_ = [[rank for rank, machine in enumerate(machines) if machine == name] for name in names]
    places = range(max(map(len, locals_)))
    rails = [[ranks[place] for ranks in locals_ if place < len(ranks)] for place in places]
    found = {"machine": [ranks for ranks in locals_ if len(ranks) > 1], "rail": [r for r in rails if len(r) > 1]}
    return {level: groups for level, groups in found.items() if groups}


def measure(machines: Sequence[str]) -> list[Measured]:
    """On all ranks at once; the same result on all."""
    return [_measure_level(level, groups) for level, groups in groups_of(machines).items()]


def _measure_level(level: str, groups: list[list[int]]) -> Measured:
    rank = dist.get_rank()
    made = [dist.new_group(ranks, backend="fairring") for ranks in groups]
    mine = next((group for group, ranks in zip(made, groups, strict=True) if rank in ranks), None)
    before = _slowest(_median(mine, SMALL_BYTES, ROUNDS_SMALL))
    large = _slowest(_median(mine, LARGE_BYTES, ROUNDS_LARGE))
    after = _slowest(_median(mine, SMALL_BYTES, ROUNDS_SMALL))
    small = min(before, after)  # what else a machine does for a moment can cover all small calls of one go
    for group in made:
        if group is mine:
            dist.destroy_process_group(group)
    largest = max(map(len, groups))
    moved = 2 * LARGE_BYTES * (largest - 1) / largest
    return Measured(level, largest, small, large, moved / max(large - small, 1e-9))


def _median(group: Any, size: int, rounds: int) -> float:
    """Seconds of one call; 0 where this rank is in no group of the level."""
    dist.barrier()
    if group is None:
        return 0.0
    tensor = torch.ones(size // 4)
    times = []
    for _ in range(WARM_UP + rounds):
        start = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        times.append(time.perf_counter() - start)
    return statistics.median(times[WARM_UP:])


def _slowest(seconds: float) -> float:
    tensor = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return float(tensor.item())
