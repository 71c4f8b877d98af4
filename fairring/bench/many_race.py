"""The goes of `fairring bench many`, in turns: round by round each contestant has one, so that noise hits all alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from fairring.bench.contestants import STOCK
from fairring.bench.pattern import Pattern
from fairring.bench.race import Racer, Score, combine, counted, timed

if TYPE_CHECKING:
    from fairring.bench.many import Options


class Tensors:
    """What one contestant reduces."""

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
        """Elements that are not the sum."""
        pairs = enumerate(zip(self.all, self._names, strict=True))
        return sum(self._patterns[name].wrong(tensor, turn + place) for place, (tensor, name) in pairs)


def race(chosen: Options, way: str, racers: list[Racer], report: Callable[[], object]) -> list[Score]:
    """Called by all ranks of the default group, which is at rest; all get the same scores, in the racers' order."""
    mixed, alike = Tensors(chosen.sizes, chosen.dtypes), Tensors(chosen.sizes, chosen.dtypes[:1])
    scores = [Score(wrong=0 if racer.contestant.sums else None) for racer in racers]
    of_racer = [alike if _takes_one_dtype(way, racer) else mixed for racer in racers]
    goes = [partial(_go, way, tensors.all, racer.group) for racer, tensors in zip(racers, of_racer, strict=True)]
    for turn in range(chosen.warm_up + chosen.iterations):
        for racer, score, tensors, go in zip(racers, scores, of_racer, goes, strict=True):
            tensors.fill(turn)
            with racer.footprint.watch():
                seconds, cpu_seconds = timed(racer.group, go)
            if score.wrong is not None:
                score.wrong += tensors.wrong(turn)
            if turn >= chosen.warm_up:
                score.seconds.append(seconds)
                score.cpu_seconds.append(cpu_seconds)
        report()
    for racer, score, go in zip(racers, scores, goes, strict=True):
        score.traffic = counted(racer, go)
        score.peak_bytes, score.shared_bytes = racer.footprint.peak, racer.footprint.shared
        combine(score)
    return scores


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
