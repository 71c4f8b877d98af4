"""The calls of `fairring bench all-reduce`: of one size, one by one or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from fairring.bench.pattern import Pattern
from fairring.bench.race import Go, Racer, Runner

OPS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


@dataclass(frozen=True)
class Course:
    """The work that every contestant has to do. One go is in_flight calls at once, each of size_bytes.

    in_a_row: goes that are timed together, one after the other; the time reported is one go's share.
    """

    size_bytes: int
    dtype: torch.dtype
    op: str
    in_flight: int
    rounds: int
    warm_up: int  # rounds before the first that is timed
    check: bool
    in_a_row: int = 1


def runners(course: Course, racers: Sequence[Racer]) -> list[Runner]:
    """The runners of one course; they share its tensors."""
    pattern = Pattern(course.dtype, dist.get_world_size(), course.op)
    elements = course.size_bytes // course.dtype.itemsize
    # Filled: their memory is there before the first go.
    goes = [
        [torch.zeros(elements, dtype=course.dtype) for _ in range(course.in_flight)] for _ in range(course.in_a_row)
    ]
    tensors = [tensor for go in goes for tensor in go]

    def prepare(racer: Racer, turn: int) -> Go:
        for call, tensor in enumerate(tensors):
            pattern.fill(tensor, dist.get_rank(), turn + call)
        one = partial(_call, op=OPS[course.op], group=racer.group)
        checked = course.check and racer.contestant.sums
        return Go(lambda: [one(go) for go in goes], partial(wrong, turn) if checked else None, partial(one, goes[0]))

    def wrong(turn: int) -> int:
        return sum(pattern.wrong(tensor, turn + call) for call, tensor in enumerate(tensors))

    return [Runner(racer, racer.footprint, partial(prepare, racer), course.in_a_row) for racer in racers]


def _call(tensors: list[torch.Tensor], op: Any, group: Any) -> None:
    if len(tensors) == 1:
        dist.all_reduce(tensors[0], op=op, group=group)
        return
    works: list[Any] = [dist.all_reduce(tensor, op=op, group=group, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
