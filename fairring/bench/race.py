"""Several contestants' all-reduces in turns: round by round each has one go, so that noise hits all alike.

Around the timed call each go also counts the processor time and the memory that this rank needed for it; what is moved
at each level is counted in one more go after the last round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from fairring.bench.contestants import Contestant, make_group, settings_of
from fairring.bench.memory import Footprint
from fairring.bench.pattern import Pattern

OPS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}

Levels = dict[int, dict[str, int]]  # messages, their bytes, and the sends in which they went out
COUNTED = ("messages", "bytes", "sends")


@dataclass(frozen=True)
class Course:
    """What every contestant has to do. One go is in_flight calls at once, each of size_bytes.

    in_a_row: goes that are timed together, one after the other; what is reported is one go's share.
    """

    size_bytes: int
    dtype: torch.dtype
    op: str
    in_flight: int
    rounds: int
    warm_up: int  # rounds before the first that is timed
    check: bool
    in_a_row: int = 1


@dataclass
class Score:
    """Of one contestant on one course. seconds: the slowest rank's, one per timed round; cpu_seconds: of all ranks.

    wrong: elements over all rounds and ranks; None: not checked. traffic: of the busiest rank in one go, by level; None
    where nothing counts it. peak_bytes, shared_bytes: of the rank that needs most, since the contestant was made; None
    where it has processes of its own.
    """

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    wrong: int | None = None
    traffic: Levels | None = None
    peak_bytes: int | None = None
    shared_bytes: int | None = None


class Racer:
    """A contestant with its group and its memory so far; made by all ranks at once, in the same order."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self.footprint = Footprint()
        with self.footprint.watch():
            self.group = make_group(contestant)

    def traffic(self) -> Levels | None:
        if self.contestant.backend != "fairring":
            return None
        from fairring import _core

        return _core.traffic(self._backend())

    def plan(self, call_bytes: int) -> dict[str, Any] | None:
        """What the planner chose for a call of this size and predicts; after the first use. None: it has none."""
        if self.contestant.backend != "fairring":
            return None
        from fairring import _core
        from fairring.config import Config
        from fairring.forecast import forecast, rows_of

        seen = _core.inspect(self._backend())
        if seen is None:
            return None
        with settings_of(self.contestant):
            config = Config.from_environment()
        machines, sites = ([one[name] for one in seen["ranks"]] for name in ("machine", "site"))
        plan = forecast(config, machines, rows_of(config, *seen["transports"]), call_bytes, sites)[0]
        names = ("steps", "slices", "slice_bytes", "seconds")
        return {"in_flight": config.total_memory // plan["staging_bytes"], **{name: plan[name] for name in names}}

    def _backend(self) -> Any:
        return self.group._get_backend(torch.device("cpu"))


def race(course: Course, racers: list[Racer], report: Callable[[], object]) -> list[Score]:
    """Called by all ranks of the default group, which is at rest; all get the same scores, in the racers' order.

    report is called after each round.
    """
    pattern = Pattern(course.dtype, dist.get_world_size(), course.op)
    elements = course.size_bytes // course.dtype.itemsize
    # Filled: their memory is there before the first go.
    goes = [
        [torch.zeros(elements, dtype=course.dtype) for _ in range(course.in_flight)] for _ in range(course.in_a_row)
    ]
    tensors = [tensor for go in goes for tensor in go]
    scores = [Score(wrong=0 if course.check and racer.contestant.sums else None) for racer in racers]
    for turn in range(course.warm_up + course.rounds):
        for racer, score in zip(racers, scores, strict=True):
            for call, tensor in enumerate(tensors):
                pattern.fill(tensor, dist.get_rank(), turn + call)
            with racer.footprint.watch():
                seconds, cpu_seconds = timed(racer.group, partial(_call_all, goes, OPS[course.op], racer.group))
            if score.wrong is not None:
                score.wrong += sum(pattern.wrong(tensor, turn + call) for call, tensor in enumerate(tensors))
            if turn >= course.warm_up:
                score.seconds.append(seconds / course.in_a_row)
                score.cpu_seconds.append(cpu_seconds / course.in_a_row)
        report()
    for racer, score in zip(racers, scores, strict=True):
        score.traffic = counted(racer, partial(_call, goes[0], OPS[course.op], racer.group))
        score.peak_bytes, score.shared_bytes = racer.footprint.peak, racer.footprint.shared
        combine(score)
    return scores


def timed(group: Any, go: Callable[[], object]) -> tuple[float, float]:
    """Seconds that a go takes on this rank, and its processor time for all of it.

    That time includes a barrier of the default group, in which this rank may still be serving its peers.
    """
    dist.barrier()
    # Ranks leave a barrier of the default group apart from each other; a small call of the same group lines them up.
    dist.all_reduce(torch.zeros(8), group=group)
    cpu_begin, begin = time.process_time(), time.perf_counter()
    go()
    seconds = time.perf_counter() - begin
    dist.barrier()
    return seconds, time.process_time() - cpu_begin


def _call_all(goes: list[list[torch.Tensor]], op: Any, group: Any) -> None:
    for tensors in goes:
        _call(tensors, op, group)


def _call(tensors: list[torch.Tensor], op: Any, group: Any) -> None:
    if len(tensors) == 1:
        dist.all_reduce(tensors[0], op=op, group=group)
        return
    works: list[Any] = [dist.all_reduce(tensor, op=op, group=group, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()


def counted(racer: Racer, go: Callable[[], object]) -> Levels | None:
    """What one go moves. After a barrier nobody has anything more to send for what was called before."""
    before = racer.traffic()
    if before is None:
        return None
    dist.barrier()
    go()
    dist.barrier()
    after = racer.traffic() or {}
    return {
        level: {name: count - before.get(level, {}).get(name, 0) for name, count in counts.items()}
        for level, counts in after.items()
    }


def combine(score: Score) -> None:
    """Makes this rank's score that of all ranks."""
    scores: list[Score] = [score] * dist.get_world_size()
    dist.all_gather_object(scores, score)
    score.seconds = [max(times) for times in zip(*(one.seconds for one in scores), strict=True)]
    score.cpu_seconds = [sum(times) for times in zip(*(one.cpu_seconds for one in scores), strict=True)]
    if score.wrong is not None:
        score.wrong = sum(one.wrong or 0 for one in scores)
    score.peak_bytes = max(one.peak_bytes or 0 for one in scores)
    score.shared_bytes = max(one.shared_bytes or 0 for one in scores)
    if score.traffic is not None:
        score.traffic = {
            level: {name: max(_of(one.traffic, level, name) for one in scores) for name in COUNTED}
            for level in sorted({level for one in scores for level in one.traffic or {}})
        }


def _of(traffic: Levels | None, level: int, name: str) -> int:
    return (traffic or {}).get(level, {}).get(name, 0)
