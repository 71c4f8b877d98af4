"""The calls of `fairring bench many`, and their tables."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from fairring.bench import rows
from fairring.bench.contestants import FLOOR, STOCK
from fairring.bench.job import Job
from fairring.bench.many import Options
from fairring.bench.pattern import Pattern
from fairring.bench.race import Go, Heat, Racer, Runner, race_all
from fairring.bench.report import Report, print_heading
from fairring.bench.table import COSTS, TIMES, amount, figure, make_table
from fairring.table import show as show_table


@dataclass(frozen=True)
class Row(rows.Row):
    """vs_floor: its time in units of the least possible time."""

    way: str
    vs_floor: float | None


def measure(arguments: Namespace, chosen: Options, job: Job) -> int:
    report = Report(arguments, job)
    racers = [Racer(contestant) for contestant in chosen.contestants]
    heats = [
        Heat(way, partial(runners, chosen.sizes, chosen.dtypes, way, racers), chosen.warm_up, chosen.iterations)
        for way in chosen.ways
    ]
    measured = race_all(heats, job.is_first)
    report.measure_links()
    cluster = rows.Cluster(job.ranks_of("machine"), report.link)
    found = [
        Row(**vars(row), way=way, vs_floor=vs_floor(row, of_way))
        for way, samples in zip(chosen.ways, measured, strict=True)
        for of_way in [rows.make_rows(samples, cluster)]
        for row in of_way
    ]
    facts = {"tensors": len(chosen.sizes), "bytes": sum(chosen.sizes), "dtypes": chosen.dtypes}
    return report.end("many", facts, found, _show)


def vs_floor(row: rows.Row, of_way: Sequence[rows.Row]) -> float | None:
    """The least possible time is the network's or c10d's own, whichever is longer."""
    floor = next((other.median for other in of_way if other.backend == FLOOR), None)
    if floor is None or row.backend == FLOOR:
        return None
    return row.median / max(floor, (row.of_limit or 0.0) * row.median)


def _show(facts: dict[str, Any], found: Sequence[Row]) -> None:
    print_heading(facts, f"{facts['tensors']} tensors of {', '.join(facts['dtypes'])}, {amount(facts['bytes'])}")
    for way in dict.fromkeys(row.way for row in found):
        of_way = [row for row in found if row.way == way]
        columns = (*TIMES, figure("vs floor", "vs_floor", ".2f"))
        show_table(make_table(columns, of_way), f"{way}: time of the slowest rank")
        show_table(make_table(COSTS[:-2], of_way), f"{way}: cost of one go, busiest rank (CPU: all ranks)")


class Tensors:
    """The tensors that one contestant reduces."""

    def __init__(self, sizes: list[int], dtypes: list[str]) -> None:
        self._patterns = {name: Pattern(getattr(torch, name), dist.get_world_size(), "sum") for name in dtypes}
        self._names = [dtypes[place % len(dtypes)] for place in range(len(sizes))]
        self.all = [
            torch.zeros(size // getattr(torch, name).itemsize, dtype=getattr(torch, name))
            for size, name in zip(sizes, self._names, strict=True)
        ]

    def fill(self, turn: int) -> None:
        for place, (tensor, name) in enumerate(zip(self.all, self._names, strict=True)):
            self._patterns[name].fill(tensor, dist.get_rank(), turn + place)

    def wrong(self, turn: int) -> int:
        """The number of elements that are not the sum."""
        pairs = enumerate(zip(self.all, self._names, strict=True))
        return sum(self._patterns[name].wrong(tensor, turn + place) for place, (tensor, name) in pairs)


def runners(sizes: list[int], dtypes: list[str], way: str, racers: list[Racer]) -> list[Runner]:
    """sizes: bytes of each tensor. The runners share the tensors."""
    mixed, alike = Tensors(sizes, dtypes), Tensors(sizes, dtypes[:1])

    def prepare(racer: Racer, turn: int) -> Go:
        tensors = alike if _takes_one_dtype(way, racer) else mixed
        tensors.fill(turn)
        wrong = partial(tensors.wrong, turn) if racer.contestant.sums else None
        return Go(partial(_go, way, tensors.all, racer.group), wrong)

    whole = sum(sizes)
    return [Runner(racer, racer.footprint, partial(prepare, racer), size_bytes=whole) for racer in racers]


def _takes_one_dtype(way: str, racer: Racer) -> bool:
    return way == "listed" or (way == "coalesced" and racer.contestant.backend == STOCK)


def _go(way: str, tensors: list[torch.Tensor], group: Any) -> None:
    if way == "coalesced":
        with _coalescing_manager(group=group, async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor, group=group)
        manager.wait()
        return
    if way == "listed":
        dist.all_reduce_coalesced(tensors, group=group)
        return
    works: list[Any] = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
