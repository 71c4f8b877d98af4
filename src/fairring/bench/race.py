"""Several contestants in turns: round by round each has one go, so that noise hits all alike.

Around the timed call each go also counts the processor time and the memory that this rank needed for it; what is moved
at each level is counted in one more go after the last round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from fairring.bench.arithmetic import percentile
from fairring.bench.contestants import Contestant, make_group, settings_of
from fairring.bench.memory import Footprint
from fairring.bench.progress import reporting
from fairring.bench.rows import Sample

Levels = Mapping[int, Mapping[str, int]]  # messages, their bytes, and the sends that carried them
COUNTED = ("messages", "bytes", "sends")


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
        """The planner's choice and prediction for a call of this size; after the first use. None: it has no planner."""
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


@dataclass
class Go:
    """A contestant's work in one round. call: is timed. wrong: counts the wrong elements of its results afterwards;
    None: they are not checked. part: the part of the call whose messages are counted; None: all of it."""

    call: Callable[[], object]
    wrong: Callable[[], int] | None
    part: Callable[[], object] | None = None


@dataclass
class Runner:
    """A contestant on one workload. prepare: writes the tensors of a round and returns what is to be done with them.

    in_a_row: calls that are timed together, one after the other; what is reported is one call's share.
    """

    racer: Racer
    footprint: Footprint
    prepare: Callable[[int], Go]
    in_a_row: int = 1
    size_bytes: int = 0  # of a call
    in_flight: int = 1  # calls at once
    form: str = ""

    def sample(self) -> Sample:
        one = self.racer.contestant
        return Sample(one.name, self.size_bytes, self.in_flight, settings=one.settings, sums=one.sums, form=self.form)


@dataclass(frozen=True)
class Heat:
    """Work that contestants do in turns. start: makes the runners; only then the work takes memory."""

    name: str
    start: Callable[[], list[Runner]]
    warm_up: int  # rounds before the first that is timed
    rounds: int


def race_all(
    heats: Sequence[Heat], shown: bool, busiest: Callable[[list[Levels | None]], Levels | None] | None = None
) -> list[list[Sample]]:
    """The samples of each heat, as race() returns them. shown: whether this rank shows progress."""
    measured = []
    with reporting(shown, sum(heat.warm_up + heat.rounds for heat in heats)) as report:
        for heat in heats:
            report.now(heat.name)
            samples = race(heat.start(), heat.warm_up, heat.rounds, report.advance, busiest)
            medians = [f"{percentile(one.seconds, 50) * 1e3:.3f} ms" for one in samples]
            texts = [f"{one.name} {one.form}".rstrip() + f" {ms}" for one, ms in zip(samples, medians, strict=True)]
            report.done(f"{heat.name}: {', '.join(texts)}")
            measured.append(samples)
    return measured


def race(
    runners: Sequence[Runner],
    warm_up: int,
    rounds: int,
    report: Callable[[], object],
    busiest: Callable[[list[Levels | None]], Levels | None] | None = None,
) -> list[Sample]:
    """Called by all ranks of the default group, which is at rest; all get the same samples, in the runners' order.

    report is called after each round. busiest: what is reported of all ranks' traffic; None: the busiest rank's.
    """
    samples = [runner.sample() for runner in runners]
    for turn in range(warm_up + rounds):
        for runner, sample in zip(runners, samples, strict=True):
            go = runner.prepare(turn)
            with runner.footprint.watch():
                seconds, cpu_seconds = timed(runner.racer.group, go.call)
            if go.wrong is not None:
                sample.wrong = (sample.wrong or 0) + go.wrong()
            if turn >= warm_up:
                sample.seconds.append(seconds / runner.in_a_row)
                sample.cpu_seconds.append(cpu_seconds / runner.in_a_row)
        report()
    for runner, sample in zip(runners, samples, strict=True):
        go = runner.prepare(0)
        sample.traffic = counted(runner.racer, go.part or go.call)
        sample.peak_bytes, sample.shared_bytes = runner.footprint.peak, runner.footprint.shared
        combine(sample, busiest or busiest_rank)
    return samples


def timed(group: Any, go: Callable[[], object]) -> tuple[float, float]:
    """The seconds that a go takes on this rank, and its processor time for all of it.

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


def counted(racer: Racer, go: Callable[[], object]) -> Levels | None:
    """The traffic of one go. After a barrier no rank has anything left to send for earlier calls."""
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


def combine(sample: Sample, busiest: Callable[[list[Levels | None]], Levels | None]) -> None:
    """Makes this rank's sample that of all ranks."""
    of_all = [sample] * dist.get_world_size()
    dist.all_gather_object(of_all, sample)
    sample.seconds = [max(times) for times in zip(*(one.seconds for one in of_all), strict=True)]
    sample.cpu_seconds = [sum(times) for times in zip(*(one.cpu_seconds for one in of_all), strict=True)]
    if sample.wrong is not None:
        sample.wrong = sum(one.wrong or 0 for one in of_all)
    sample.peak_bytes = max(one.peak_bytes or 0 for one in of_all)
    sample.shared_bytes = max(one.shared_bytes or 0 for one in of_all)
    sample.traffic = busiest([one.traffic for one in of_all])


def busiest_rank(traffic: list[Levels | None]) -> Levels | None:
    """By level, the traffic of the busiest rank; traffic: of each rank."""
    if traffic[0] is None:
        return None
    levels = sorted({level for one in traffic for level in one or {}})
    return {level: {name: max(_of(one, level, name) for one in traffic) for name in COUNTED} for level in levels}


def _of(traffic: Levels | None, level: int, name: str) -> int:
    return (traffic or {}).get(level, {}).get(name, 0)
