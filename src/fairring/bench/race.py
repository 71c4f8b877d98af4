"""Several contestants in turns: round by round each has one go, so that noise hits all alike.

Around the timed call each go also counts the processor time and the memory that this rank needed for it; what is moved
at each level is counted in one more go after the last round.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from fairring.bench.contestants import Contestant, make_group
from fairring.bench.job import Job, is_on_gpu
from fairring.bench.memory import Footprint
from fairring.bench.rows import Amounts, Levels, Sample

COUNTED = ("messages", "bytes", "sends")


class Racer:
    """A contestant with its group of all ranks and its memory so far; made by all ranks at once, in the same order."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self.footprint = Footprint()
        with self.footprint.watch():
            self.group = make_group(contestant)
        self._own = [self.group]

    def of_some(self, rank: int, groups: Sequence[Sequence[int]]) -> Any:
        """This rank's of further groups, given by their ranks. Called by all ranks."""
        made = [make_group(self.contestant, list(ranks)) for ranks in groups]
        self._own.append(next(group for group, ranks in zip(made, groups, strict=True) if rank in ranks))
        return self._own[-1]

    def traffic(self) -> Levels | None:
        """Of all its groups."""
        if self.contestant.backend != "fairring":
            return None
        from fairring import _core

        total: dict[int, dict[str, int]] = {}
        for group in self._own:
            for level, counts in (_core.traffic(group._get_backend(torch.get_default_device())) or {}).items():
                sums = total.setdefault(level, dict.fromkeys(COUNTED, 0))
                total[level] = {name: sums[name] + counts[name] for name in COUNTED}
        return total


@dataclass
class Go:
    """A contestant's work in one round. call: is timed. wrong: counts the wrong elements of its results afterwards;
    None: they are not checked. part: the part of the call whose messages are counted; None: all of it."""

    call: Callable[[], object]
    wrong: Callable[[], int] | None
    part: Callable[[], object] | None = None


@dataclass
class Runner:
    """A contestant in one heat. prepare: writes the tensors of a round and returns what is to be done with them.

    footprint: its memory; None: the racer's, of all heats.
    """

    racer: Racer
    prepare: Callable[[int], Go]
    form: str = ""
    footprint: Footprint | None = None

    def __post_init__(self) -> None:
        self.memory = self.footprint or self.racer.footprint


@dataclass(frozen=True)
class Heat:
    """Work that contestants do in turns. start: makes the runners; only then the work takes memory.

    in_a_row: goes that are timed together, one after the other; the time reported is one go's share. copied_bytes: on
    one machine the limit is the time to copy so many; 0: there is no such limit.
    """

    name: str
    start: Callable[[], list[Runner]]
    warm_up: int  # rounds before the first that is timed
    rounds: int
    in_a_row: int = 1
    amounts: Amounts = field(default_factory=Amounts)
    copied_bytes: int = 0


def race(heat: Heat, job: Job) -> list[Sample]:
    """Called by all ranks of the default group, which is at rest; all get the same samples, in the runners' order."""
    runners = heat.start()
    samples = [Sample(runner.racer.contestant, runner.form) for runner in runners]
    for turn in range(heat.warm_up + heat.rounds):
        for runner, sample in zip(runners, samples, strict=True):
            go = runner.prepare(turn)
            with runner.memory.watch():
                seconds, cpu_seconds, host_seconds = timed(runner.racer.group, go.call)
            if go.wrong is not None:
                sample.wrong = (sample.wrong or 0) + go.wrong()
            if turn >= heat.warm_up:
                sample.seconds.append(seconds / heat.in_a_row)
                sample.cpu_seconds.append(cpu_seconds / heat.in_a_row)
                if is_on_gpu():
                    sample.host_seconds.append(host_seconds / heat.in_a_row)
    for runner, sample in zip(runners, samples, strict=True):
        go = runner.prepare(0)
        sample.traffic = counted(runner.racer, go.part or go.call)
        sample.peak_bytes, sample.shared_bytes = runner.memory.peak, runner.memory.shared
        sample.device_peak_bytes = runner.memory.device_peak
        combine(sample, job)
    if job.is_first:
        texts = [f"{one.contestant.name} {one.form}".rstrip() + f" {one.median * 1e3:.3f} ms" for one in samples]
        print(f"{heat.name}: {', '.join(texts)}", file=sys.stderr, flush=True)
    return samples


def timed(group: Any, go: Callable[[], object]) -> tuple[float, float, float]:
    """The seconds that a go takes on this rank, its processor time for all of it, and the seconds until it returns.

    Processor time includes a barrier of the default group, in which this rank may still be serving its peers. On a GPU
    a go has ended when its results are there.
    """
    dist.barrier()
    # Ranks leave a barrier of the default group apart from each other; a small call of the same group lines them up.
    dist.all_reduce(torch.zeros(8), group=group)
    await_device()
    cpu_begin, begin = time.process_time(), time.perf_counter()
    go()
    host_seconds = time.perf_counter() - begin
    await_device()
    seconds = time.perf_counter() - begin
    dist.barrier()
    return seconds, time.process_time() - cpu_begin, host_seconds


def await_device() -> None:
    if is_on_gpu():
        torch.cuda.synchronize()


def counted(racer: Racer, go: Callable[[], object]) -> Levels | None:
    """The traffic of one go. After a barrier no rank has anything left to send for earlier calls."""
    before = racer.traffic()
    if before is None:
        return None
    dist.barrier()
    go()
    await_device()
    dist.barrier()
    after = racer.traffic() or {}
    return {
        level: {name: count - before.get(level, {}).get(name, 0) for name, count in counts.items()}
        for level, counts in after.items()
    }


def combine(sample: Sample, job: Job) -> None:
    """Makes this rank's sample that of all ranks."""
    of_all = [sample] * job.place.world
    dist.all_gather_object(of_all, sample)
    sample.seconds = [max(times) for times in zip(*(one.seconds for one in of_all), strict=True)]
    sample.host_seconds = [max(times) for times in zip(*(one.host_seconds for one in of_all), strict=True)]
    sample.cpu_seconds = [sum(times) for times in zip(*(one.cpu_seconds for one in of_all), strict=True)]
    if sample.wrong is not None:
        sample.wrong = sum(one.wrong or 0 for one in of_all)
    sample.peak_bytes = max(one.peak_bytes for one in of_all)
    sample.shared_bytes = max(one.shared_bytes for one in of_all)
    sample.device_peak_bytes = max(one.device_peak_bytes for one in of_all)
    sample.traffic = busiest([one.traffic for one in of_all], job)


def busiest(traffic: Sequence[Levels | None], job: Job) -> Levels | None:
    """By level, the traffic of the busiest rank, machine and site; traffic: of each rank."""
    if None in traffic:
        return None
    counted = [one or {} for one in traffic]
    above = "site" if len(job.ranks_of("site")) > 1 else "machine"
    found: dict[int, Mapping[str, int]] = {}
    for level in sorted({level for one in counted for level in one}):
        sums: dict[Any, dict[str, int]] = {}
        for place, one in zip(job.places, counted, strict=True):
            whose = getattr(place, ("rank", "machine")[level] if level < 2 else above)
            counts = sums.setdefault(whose, dict.fromkeys(COUNTED, 0))
            for name in COUNTED:
                counts[name] += one.get(level, {}).get(name, 0)
        found[level] = max(sums.values(), key=lambda counts: counts["bytes"])
    return found
