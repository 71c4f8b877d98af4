"""Timing of several backends' all-reduce in turns: round by round each has one go, so that noise hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from pattern import Pattern

OPS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG}


@dataclass(frozen=True)
class Course:
    """What every backend has to do. One go is in_flight calls at once, each of size_bytes."""

    size_bytes: int
    dtype: torch.dtype
    op: str
    in_flight: int
    rounds: int
    warm_up: int  # rounds before the first that is timed


@dataclass
class Score:
    """Of one backend. seconds: the slowest rank's, one per timed round; processor_seconds: the mean of the ranks', all
    threads of each process. wrong: elements over all rounds and ranks."""

    seconds: list[float] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)
    wrong: int = 0


def race(course: Course, groups: dict[str, dist.ProcessGroup], report: Callable[[], object]) -> dict[str, Score]:
    """Called by all ranks of the default group, which must be of another backend or at rest; all get the same scores.

    groups: the contestants by name. report is called after each round.
    """
    pattern = Pattern(course.dtype, dist.get_world_size(), course.op)
    elements = course.size_bytes // course.dtype.itemsize
    tensors = [torch.empty(elements, dtype=course.dtype) for _ in range(course.in_flight)]
    scores = {name: Score() for name in groups}
    for turn in range(course.warm_up + course.rounds):
        for name, group in groups.items():
            for call, tensor in enumerate(tensors):
                pattern.fill(tensor, dist.get_rank(), turn + call)
            seconds, processor_seconds = _go(tensors, OPS[course.op], group)
            scores[name].wrong += sum(pattern.wrong(tensor, turn + call) for call, tensor in enumerate(tensors))
            if turn >= course.warm_up:
                scores[name].seconds.append(seconds)
                scores[name].processor_seconds.append(processor_seconds)
        report()
    for score in scores.values():
        _combine(score)
    return scores


def _go(tensors: list[torch.Tensor], op: dist.ReduceOp.RedOpType, group: dist.ProcessGroup) -> tuple[float, float]:
    """Seconds on this rank from the first call until the last result is there, and of processors meanwhile."""
    dist.barrier()
    # Ranks leave a barrier of the default group apart from each other; a small call of the same group lines them up.
    dist.all_reduce(torch.zeros(8), group=group)
    processor_begin, begin = time.process_time(), time.perf_counter()
    if len(tensors) == 1:
        dist.all_reduce(tensors[0], op=op, group=group)
    else:
        works = [dist.all_reduce(tensor, op=op, group=group, async_op=True) for tensor in tensors]
        for work in works:
            assert work is not None
            work.wait()
    return time.perf_counter() - begin, time.process_time() - processor_begin


def _combine(score: Score) -> None:
    """Makes this rank's score that of all ranks: each round's slowest, the processors' mean, all that is wrong."""
    seconds = torch.tensor(score.seconds, dtype=torch.float64)
    processor_seconds = torch.tensor(score.processor_seconds, dtype=torch.float64)
    wrong = torch.tensor(score.wrong)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    dist.all_reduce(processor_seconds)
    dist.all_reduce(wrong)
    score.seconds, score.wrong = seconds.tolist(), int(wrong)
    score.processor_seconds = (processor_seconds / dist.get_world_size()).tolist()
