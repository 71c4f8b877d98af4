"""The calls of `fairring bench` by collective, one by one or several at once; every element of a result is checked."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
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


Given = list[tuple[Tensor, int]]
Got = list[tuple[Tensor, int, int]]


class Call:
    """One call with its tensors: `whole` stands for all ranks, in blocks; `block` is of one rank."""

    def __init__(self, course: Course) -> None:
        self.rank, self.world, self.op = dist.get_rank(), dist.get_world_size(), OPS[course.op]
        self._pattern = Pattern(course.dtype, self.world, course.op)
        self._elements, self._dtype = course.size_bytes // course.dtype.itemsize, course.dtype
        self._reduces = COLLECTIVES[course.collective].reduces
        self._kind = KINDS[course.collective]
        self._given, self._got = self._kind.given(self), self._kind.got(self)

    @cached_property
    def whole(self) -> Tensor:
        return torch.zeros(self._elements, dtype=self._dtype)

    @cached_property
    def other(self) -> Tensor:
        """As large as the whole."""
        return torch.zeros_like(self.whole)

    @cached_property
    def block(self) -> Tensor:
        return torch.zeros(self._elements // self.world, dtype=self._dtype)

    def blocks_of_root(self) -> list[Tensor] | None:
        return list(self.whole.chunk(self.world)) if self.rank == ROOT else None

    def prepare(self, turn: int) -> None:
        """Fills the tensors. After the first time they have their memory."""
        for tensor, _, _ in self._got:
            tensor.zero_()
        fill = self._pattern.fill if self._reduces else self._pattern.fill_copy
        for tensor, later in self._given:
            fill(tensor, self.rank, turn + later)

    def start(self, group: Any, asynchronous: bool) -> Any:
        """Returns what the collective returns."""
        return self._kind.start(self, group=group, async_op=asynchronous)

    def wrong(self, turn: int) -> int:
        """The number of wrong elements of this rank's result."""
        if self._reduces:
            return sum(self._pattern.wrong(tensor, turn + later) for tensor, _, later in self._got)
        return sum(self._pattern.wrong_copy(tensor, rank, turn + later) for tensor, rank, later in self._got)


@dataclass(frozen=True)
class Kind:
    """A collective. given: the tensors that a rank fills, with the values of a turn so many later. got: the tensors of
    its result, the rank whose values they have if nothing is reduced, and how many turns later those are."""

    start: Callable[..., Any]
    given: Callable[[Call], Given]
    got: Callable[[Call], Got]


def _whole(call: Call) -> Given:
    return [(call.whole, 0)]


def _block(call: Call) -> Given:
    return [(call.block, 0)]


def _blocks(call: Call) -> Given:
    """A block for rank r has the values of r turns later."""
    return [(block, rank) for rank, block in enumerate(call.whole.chunk(call.world))]


def _blocks_sent(call: Call) -> Given:
    return [(block, rank) for rank, block in enumerate(call.other.chunk(call.world))]


def _whole_of_root(call: Call) -> Got:
    return [(call.whole, ROOT, 0)]


def _own_block(call: Call) -> Got:
    return [(call.block, ROOT, call.rank)]


def _block_of_each(call: Call) -> Got:
    return [(block, rank, 0) for rank, block in enumerate(call.whole.chunk(call.world))]


def _block_from_each(call: Call) -> Got:
    return [(block, rank, call.rank) for block, rank, _ in _block_of_each(call)]


def _there_and_back(call: Call) -> Got:
    return [(call.other, ROOT, 0)] if call.rank in (ROOT, call.world - 1) else []


def _at_root(got: Callable[[Call], Got]) -> Callable[[Call], Got]:
    return lambda call: got(call) if call.rank == ROOT else []


def _ping_pong(call: Call, group: Any, async_op: bool) -> None:  # noqa: ARG001
    """From rank 0 to the last rank and back."""
    last = call.world - 1
    if call.rank == ROOT:
        dist.send(call.whole, last, group)
        dist.recv(call.other, last, group)
    elif call.rank == last:
        dist.recv(call.other, ROOT, group)
        dist.send(call.other, ROOT, group)


KINDS = {
    "all-reduce": Kind(lambda call, **how: dist.all_reduce(call.whole, call.op, **how), _whole, _whole_of_root),
    "reduce-scatter": Kind(
        lambda call, **how: dist.reduce_scatter_tensor(call.block, call.whole, call.op, **how), _blocks, _own_block
    ),
    "all-gather": Kind(
        lambda call, **how: dist.all_gather_into_tensor(call.whole, call.block, **how), _block, _block_of_each
    ),
    "all-to-all": Kind(
        lambda call, **how: dist.all_to_all_single(call.whole, call.other, **how), _blocks_sent, _block_from_each
    ),
    "broadcast": Kind(lambda call, **how: dist.broadcast(call.whole, ROOT, **how), _whole, _whole_of_root),
    "reduce": Kind(lambda call, **how: dist.reduce(call.whole, ROOT, call.op, **how), _whole, _at_root(_whole_of_root)),
    "gather": Kind(
        lambda call, **how: dist.gather(call.block, call.blocks_of_root(), ROOT, **how),
        _block,
        _at_root(_block_of_each),
    ),
    "scatter": Kind(
        lambda call, **how: dist.scatter(call.block, call.blocks_of_root(), ROOT, **how), _blocks, _own_block
    ),
    "send-recv": Kind(_ping_pong, _whole, _there_and_back),
    "barrier": Kind(lambda _, **how: dist.barrier(**how), lambda _: [], lambda _: []),
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
    goes = [[Call(course) for _ in range(course.in_flight)] for _ in range(course.in_a_row)]
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
