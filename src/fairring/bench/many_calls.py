"""The calls of `fairring bench many`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from fairring.bench.contestants import STOCK
from fairring.bench.pattern import Pattern
from fairring.bench.race import Go, Racer, Runner


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
