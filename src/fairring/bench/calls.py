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
from torch.distributed.distributed_c10d import _coalescing_manager

from fairring.bench.collective import ITEM_BYTES, rounds
from fairring.bench.collectives import BARRIER, COLLECTIVES
from fairring.bench.job import Job
from fairring.bench.measure import Work
from fairring.bench.pattern import Pattern
from fairring.bench.race import Go, Heat, Racer, Runner
from fairring.bench.rows import Amounts
from fairring.bench.sizes import format_size

OPS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
ROOT = 0


Given = list[tuple[Tensor, int]]
Got = list[tuple[Tensor, int, int]]


class Call:
    """One call with its tensors: `whole` stands for all ranks, in blocks; `block` is of one rank."""

    def __init__(self, collective: str, size_bytes: int, dtype: torch.dtype, op: str) -> None:
        self.rank, self.world, self.op = dist.get_rank(), dist.get_world_size(), OPS[op]
        self._pattern = Pattern(dtype, self.world, op)
        self._elements, self._dtype = size_bytes // dtype.itemsize, dtype
        self._reduces = COLLECTIVES[collective].reduces
        self._kind = KINDS[collective]
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


def work(arguments: Namespace, job: Job) -> Work:
    name, op, dtype = arguments.subcommand, arguments.op, arguments.dtype
    of_op = f" ({op})" if COLLECTIVES[name].reduces else ""
    of_dtype = "" if name == BARRIER else f" of {dtype}"
    return Work(
        f"{name}{of_op}{of_dtype}, {arguments.in_flight} in flight{', coalesced' if arguments.coalesced else ''}",
        partial(heats, arguments, job),
        facts={"dtype": dtype, "op": op if of_op else None, "in_flight": arguments.in_flight},
    )


def heats(arguments: Namespace, job: Job, racers: Sequence[Racer]) -> list[Heat]:
    sizes = [0] if arguments.subcommand == BARRIER else [_in_blocks(size, arguments) for size in arguments.sizes_bytes]
    return [heat(arguments, job, racers, size) for size in dict.fromkeys(sizes)]


def heat(arguments: Namespace, job: Job, racers: Sequence[Racer], size_bytes: int) -> Heat:
    name, in_flight, turns = arguments.subcommand, arguments.in_flight, rounds(arguments, size_bytes)
    return Heat(
        format_size(size_bytes),
        partial(runners, arguments, racers, size_bytes, turns["in_a_row"]),
        **turns,
        amounts=amounts(name, size_bytes, in_flight, job),
        copied_bytes=size_bytes * in_flight if COLLECTIVES[name].fills else 0,
    )


def amounts(name: str, size_bytes: int, in_flight: int, job: Job) -> Amounts:
    """A go of so many calls of a collective at once. Across sites only the way between them counts: it is slower."""
    one, machines, sites = COLLECTIVES[name], job.ranks_of("machine"), job.ranks_of("site")
    level, ranks = ("site", sites) if len(sites) > 1 else ("rail", machines)
    least = {level: size_bytes * in_flight * one.link_share(ranks)} if len(ranks) > 1 else {}
    return Amounts(size_bytes, in_flight, one.bus_factor(job.place.world), least)


def _in_blocks(size_bytes: int, arguments: Namespace) -> int:
    """Rounded to whole elements of every rank's block, at least one."""
    if not COLLECTIVES[arguments.subcommand].blockwise:
        return size_bytes
    step = ITEM_BYTES[arguments.dtype] * dist.get_world_size()
    return max(step, size_bytes // step * step)


def runners(arguments: Namespace, racers: Sequence[Racer], size_bytes: int, in_a_row: int) -> list[Runner]:
    """They share their tensors."""
    make = partial(Call, arguments.subcommand, size_bytes, getattr(torch, arguments.dtype), arguments.op)
    goes = [[make() for _ in range(arguments.in_flight)] for _ in range(in_a_row)]
    calls = [call for go in goes for call in go]

    def prepare_all(turn: int) -> None:
        for number, call in enumerate(calls):
            call.prepare(turn + number)

    def prepare(racer: Racer, turn: int) -> Go:
        prepare_all(turn)
        one = partial(_go, group=racer.group, coalesced=arguments.coalesced)
        checked = arguments.check and racer.contestant.sums
        return Go(lambda: [one(go) for go in goes], partial(wrong, turn) if checked else None, partial(one, goes[0]))

    def wrong(turn: int) -> int:
        return sum(call.wrong(turn + number) for number, call in enumerate(calls))

    prepare_all(0)
    return [Runner(racer, partial(prepare, racer)) for racer in racers]


def _go(calls: Sequence[Call], group: Any, coalesced: bool) -> None:
    if coalesced:
        with _coalescing_manager(group=group, async_ops=True) as manager:
            for call in calls:
                call.start(group, False)
        manager.wait()
        return
    if len(calls) == 1:
        calls[0].start(group, False)
        return
    for work in [call.start(group, True) for call in calls]:
        if work is not None:  # send-recv has ended already
            work.wait()
