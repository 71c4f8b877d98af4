"""The calls of `fairring bench` by collective, one by one or several at once; every element of a result is checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fairring.bench.collective import ITEM_BYTES, Options
from fairring.bench.collectives import ALL_REDUCE, BARRIER, COLLECTIVES
from fairring.bench.job import Job
from fairring.bench.memory import copy_seconds
from fairring.bench.pattern import Pattern
from fairring.bench.race import Go, Heat, Racer, Runner, race_all
from fairring.bench.report import Report, here, print_heading
from fairring.bench.rows import Cluster, Row, make_rows
from fairring.bench.sizes import format_size
from fairring.bench.table import COSTS, TIMES, make_table
from fairring.table import show

OPS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
ROOT = 0


@dataclass(frozen=True)
class Course:
    """The work that every contestant has to do. One go is in_flight calls at once, each of size_bytes.

    in_a_row: goes that are timed together, one after the other; the time reported is one go's share.
    """

    collective: str
    size_bytes: int
    dtype: torch.dtype
    op: str
    in_flight: int
    rounds: int
    warm_up: int  # rounds before the first that is timed
    check: bool
    in_a_row: int = 1


class Call(ABC):
    """One call with its tensors: `whole` stands for all ranks, in blocks; `block` is of one rank."""

    moves = False  # and reduces nothing

    def __init__(self, course: Course) -> None:
        self.rank, self.world, self.op = dist.get_rank(), dist.get_world_size(), OPS[course.op]
        self.pattern = Pattern(course.dtype, self.world, course.op)
        self._elements, self._dtype = course.size_bytes // course.dtype.itemsize, course.dtype

    @cached_property
    def whole(self) -> Tensor:
        return torch.zeros(self._elements, dtype=self._dtype)

    @abstractmethod
    def prepare(self, turn: int) -> None:
        """Fills the tensors. After the first time they have their memory."""

    @abstractmethod
    def start(self, group: Any, asynchronous: bool) -> Any:
        """Returns what the collective returns."""

    @abstractmethod
    def wrong(self, turn: int) -> int:
        """The number of wrong elements of this rank's result."""

    def fill(self, tensor: Tensor, turn: int) -> None:
        fill = self.pattern.fill_copy if self.moves else self.pattern.fill
        fill(tensor, self.rank, turn)


class AllReduce(Call):
    def prepare(self, turn: int) -> None:
        self.fill(self.whole, turn)

    def start(self, group: Any, asynchronous: bool) -> Any:
        return dist.all_reduce(self.whole, self.op, group, asynchronous)

    def wrong(self, turn: int) -> int:
        return self.pattern.wrong(self.whole, turn)


class Reduce(AllReduce):
    def start(self, group: Any, asynchronous: bool) -> Any:
        return dist.reduce(self.whole, ROOT, self.op, group, asynchronous)

    def wrong(self, turn: int) -> int:
        return super().wrong(turn) if self.rank == ROOT else 0


class Broadcast(AllReduce):
    moves = True

    def start(self, group: Any, asynchronous: bool) -> Any:
        return dist.broadcast(self.whole, ROOT, group, asynchronous)

    def wrong(self, turn: int) -> int:
        return self.pattern.wrong_copy(self.whole, ROOT, turn)


class Blockwise(Call):
    """The size is a whole number of blocks. The values of the block for rank r are those of turn + r."""

    @cached_property
    def block(self) -> Tensor:
        return torch.zeros(self._elements // self.world, dtype=self._dtype)

    def blocks(self) -> list[Tensor]:
        return list(self.whole.chunk(self.world))

    def fill_blocks(self, turn: int) -> None:
        for rank, block in enumerate(self.blocks()):
            self.fill(block, turn + rank)


class ReduceScatter(Blockwise):
    def prepare(self, turn: int) -> None:
        self.fill_blocks(turn)
        self.block.zero_()

    def start(self, group: Any, asynchronous: bool) -> Any:
        return dist.reduce_scatter_tensor(self.block, self.whole, self.op, group, asynchronous)

    def wrong(self, turn: int) -> int:
        return self.pattern.wrong(self.block, turn + self.rank)


class Scatter(ReduceScatter):
    moves = True

    def start(self, group: Any, asynchronous: bool) -> Any:
        return dist.scatter(self.block, self.blocks() if self.rank == ROOT else None, ROOT, group, asynchronous)

    def wrong(self, turn: int) -> int:
        return self.pattern.wrong_copy(self.block, ROOT, turn + self.rank)


class AllGather(Blockwise):
    moves = True

    def prepare(self, turn: int) -> None:
        self.fill(self.block, turn)
        self.whole.zero_()

    def start(self, group: Any, asynchronous: bool) -> Any:
        return dist.all_gather_into_tensor(self.whole, self.block, group, asynchronous)

    def wrong(self, turn: int) -> int:
        return sum(self.pattern.wrong_copy(block, rank, turn) for rank, block in enumerate(self.blocks()))


class Gather(AllGather):
    def start(self, group: Any, asynchronous: bool) -> Any:
        return dist.gather(self.block, self.blocks() if self.rank == ROOT else None, ROOT, group, asynchronous)

    def wrong(self, turn: int) -> int:
        return super().wrong(turn) if self.rank == ROOT else 0


class AllToAll(AllGather):
    """Into `whole`."""

    @cached_property
    def sent(self) -> Tensor:
        return torch.zeros_like(self.whole)

    def prepare(self, turn: int) -> None:
        for rank, block in enumerate(self.sent.chunk(self.world)):
            self.fill(block, turn + rank)
        self.whole.zero_()

    def start(self, group: Any, asynchronous: bool) -> Any:
        return dist.all_to_all_single(self.whole, self.sent, group=group, async_op=asynchronous)

    def wrong(self, turn: int) -> int:
        return super().wrong(turn + self.rank)


class SendRecv(Call):
    """From rank 0 to the last rank and back."""

    moves = True

    @cached_property
    def received(self) -> Tensor:
        return torch.zeros_like(self.whole)

    def prepare(self, turn: int) -> None:
        self.fill(self.whole, turn)
        self.received.zero_()

    def start(self, group: Any, _asynchronous: bool) -> None:
        last = self.world - 1
        if self.rank == ROOT:
            dist.send(self.whole, last, group)
            dist.recv(self.received, last, group)
        elif self.rank == last:
            dist.recv(self.received, ROOT, group)
            dist.send(self.received, ROOT, group)

    def wrong(self, turn: int) -> int:
        return self.pattern.wrong_copy(self.received, ROOT, turn) if self.rank in (ROOT, self.world - 1) else 0


class Barrier(Call):
    def prepare(self, _turn: int) -> None:
        pass

    def start(self, group: Any, asynchronous: bool) -> Any:
        return dist.barrier(group, asynchronous)

    def wrong(self, _turn: int) -> int:
        return 0


CALLS: dict[str, type[Call]] = {
    "all-reduce": AllReduce,
    "reduce-scatter": ReduceScatter,
    "all-gather": AllGather,
    "all-to-all": AllToAll,
    "broadcast": Broadcast,
    "reduce": Reduce,
    "gather": Gather,
    "scatter": Scatter,
    "send-recv": SendRecv,
    "barrier": Barrier,
}


def measure(arguments: Namespace, chosen: Options, job: Job) -> int:
    report = Report(arguments, job)
    racers = [Racer(contestant) for contestant in chosen.contestants]
    collective = COLLECTIVES[chosen.collective]
    courses = [_course(chosen, size) for size in dict.fromkeys(_in_blocks(size, chosen) for size in chosen.sizes)]
    heats = [
        Heat(format_size(one.size_bytes), partial(runners, one, racers), one.warm_up, one.rounds) for one in courses
    ]
    measured = race_all(heats, job.is_first)
    if chosen.collective == ALL_REDUCE:
        for samples in measured:
            for racer, sample in zip(racers, samples, strict=True):
                sample.plan = racer.plan(sample.size_bytes)
    report.measure_links()
    copied = courses if collective.fills and not report.link else []
    copying = {size: copy_seconds(size, one.rounds) for one in copied for size in [one.size_bytes * one.in_flight]}
    cluster = Cluster(job.ranks_of("machine"), report.link, copying, job.ranks_of("site"), report.site_link)
    facts = {
        "copy_seconds": copying,
        "dtype": chosen.dtype,
        "op": chosen.op if collective.reduces else None,
        "in_flight": chosen.in_flight,
        "sweep": arguments.sweep,
        "load_afterwards": here()["load"],
    }
    rows = [row for samples in measured for row in make_rows(samples, cluster, collective)]
    return report.end(chosen.collective, facts, rows, partial(_show, chosen.collective))


def _course(chosen: Options, size_bytes: int) -> Course:
    rounds, warm_up = chosen.rounds(size_bytes)
    return Course(
        chosen.collective,
        size_bytes,
        getattr(torch, chosen.dtype),
        chosen.op,
        chosen.in_flight,
        rounds,
        warm_up,
        chosen.check,
        chosen.goes_in_a_row(size_bytes),
    )


def _in_blocks(size_bytes: int, chosen: Options) -> int:
    """Rounded to whole elements of every rank's block, at least one."""
    if not COLLECTIVES[chosen.collective].blockwise:
        return size_bytes
    step = ITEM_BYTES[chosen.dtype] * dist.get_world_size()
    return max(step, size_bytes // step * step)


def _show(collective: str, facts: dict[str, Any], rows: Sequence[Row]) -> None:
    op = f" ({facts['op']})" if facts["op"] else ""
    dtype = "" if collective == BARRIER else f" of {facts['dtype']}"
    print_heading(facts, f"{collective}{op}{dtype}, {facts['in_flight']} in flight")
    show(make_table(TIMES, rows), "Time of the slowest rank")
    show(make_table(COSTS, rows), "Cost of one go, busiest rank (CPU: all ranks)")


def runners(course: Course, racers: Sequence[Racer]) -> list[Runner]:
    """The runners of one course; they share its tensors."""
    goes = [[CALLS[course.collective](course) for _ in range(course.in_flight)] for _ in range(course.in_a_row)]
    calls = [call for go in goes for call in go]
    prepare_all(calls, 0)

    def prepare(racer: Racer, turn: int) -> Go:
        prepare_all(calls, turn)
        one = partial(_go, group=racer.group)
        checked = course.check and racer.contestant.sums
        return Go(lambda: [one(go) for go in goes], partial(wrong, turn) if checked else None, partial(one, goes[0]))

    def wrong(turn: int) -> int:
        return sum(call.wrong(turn + number) for number, call in enumerate(calls))

    size, at_once = course.size_bytes, course.in_flight
    return [Runner(racer, racer.footprint, partial(prepare, racer), course.in_a_row, size, at_once) for racer in racers]


def prepare_all(calls: Sequence[Call], turn: int) -> None:
    for number, call in enumerate(calls):
        call.prepare(turn + number)


def _go(calls: Sequence[Call], group: Any) -> None:
    if len(calls) == 1:
        calls[0].start(group, False)
        return
    for work in [call.start(group, True) for call in calls]:
        if work is not None:  # send-recv has ended already
            work.wait()
