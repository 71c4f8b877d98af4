"""A rank that plays a program: it makes the calls, waits for them in an order of its own, and looks at the results."""

from __future__ import annotations

import hashlib
import os
import random
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from random_programs.program import Program
from random_programs.steps import GROUP_TIMEOUT, Call, Member, Result
from random_programs.values import canonical, flat, raw

_MOST_WRONG = 5  # that a rank reports
_LOITER_SECONDS = 0.003
_SLOW_LOITER_SECONDS = 0.008


@dataclass(frozen=True)
class Fault:
    """One wrong bit, which the comparison with other results has to find.

    kind: value (in what the last rank of the second run got), rank (in what it says of a result that all ranks share),
    run (in what all ranks of the second run say of one that they do not share).
    """

    kind: str


@dataclass(frozen=True)
class Run:
    """The first or the second of a program, the port of its store, and the variables of all ranks."""

    number: int
    port: int
    variables: dict[str, str]


@dataclass
class Report:
    """digests: of all results, by their names; and of those that ranks share. barriers: when it came and left."""

    digests: dict[str, str] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)
    barriers: dict[str, tuple[float, float]] = field(default_factory=dict)
    processor_seconds: float = 0


@dataclass
class _Pending:
    call: Call
    work: Any
    made: float
    looked: torch.futures.Future[None] | None  # completed by a callback of the work's, which has looked at the results


class Player:
    def __init__(self, program: Program, run: Run, rank: int, fault: Fault | None) -> None:
        self.program, self.rank = program, rank
        self.own = random.Random(f"{program.seed} {run.number} {rank}")
        self.report = Report()
        self.wrong: list[str] = []
        self.now = "init"
        self._slow = program.slow_rank[run.number] == rank
        erring = fault and run.number == 1 and (fault.kind == "run" or rank == program.world.size - 1)
        self._fault = fault if erring else None
        self._leaves = program.leaves and run.number == 1  # its process, too: so in the last run alone
        self._port, self._life = run.port, 0
        self._groups: dict[int, tuple[Any, list[int]]] = {}
        self._pending: list[_Pending] = []
        self._most_pending = self.own.choice((0, 1, 3, 10))

    def play(self) -> Report:
        before = time.process_time()
        self.init_again(same_keys=True)
        for step in self.program.steps:
            self.now = f"step {step.number}, {type(step).__name__}"
            self._loiter()
            step.play(self)
            self.settle(self.own.randint(0, self._most_pending))
        self.settle()
        if not self._leaves:
            self.now = "destroy"
            dist.destroy_process_group()
        self.report.processor_seconds = time.process_time() - before
        return self.report

    # The methods that steps call.

    def init_again(self, same_keys: bool) -> None:
        self._life += not same_keys
        store = dist.PrefixStore(f"life {self._life}", dist.TCPStore("127.0.0.1", self._port, is_master=False))
        size = self.program.world.size
        dist.init_process_group("fairring", store=store, rank=self.rank, world_size=size, timeout=GROUP_TIMEOUT)
        self._groups = {0: (dist.group.WORLD, list(range(size)))}

    def add(self, group: int, process_group: Any, ranks: list[int]) -> None:
        self._groups[group] = (process_group, ranks)

    def remove(self, group: int) -> Any:
        process_group, ranks = self._groups.pop(group)
        return process_group if self.rank in ranks else None

    def ranks(self, group: int) -> list[int]:
        return self._groups[group][1]

    def member(self, group: int) -> Member | None:
        process_group, ranks = self._groups[group]
        if self.rank not in ranks:
            return None
        world = self.program.world
        several_sites = len({world.sites[rank] for rank in ranks}) > 1
        order, later = world.order_of_sums(ranks), self.own.random() < 0.7
        return Member(self.rank, self.program.seed, process_group, ranks, order, later, several_sites)

    def make(self, call: Call) -> None:
        made = time.monotonic()
        work = _in_thread(call.start) if self.own.random() < 0.1 else call.start()
        if work is None:
            self._done(call, made)
            return
        looked = None
        if isinstance(work, dist.Work) and call.has_future and self.own.random() < 0.2:

            def look(future: torch.futures.Future[Any]) -> None:
                future.value()  # raises if the call failed
                self._done(call, made)

            looked = work.get_future().then(look)
        self._pending.append(_Pending(call, work, made, looked))

    def make_at_once(self, calls: list[list[Call]]) -> None:
        if calls:
            with ThreadPoolExecutor(len(calls)) as threads:
                list(threads.map(_made, calls))
        for call in (call for mine in calls for call in mine):
            self._look(call)

    def settle(self, most: int = 0, group: int | None = None) -> None:
        """Waits for calls, in any order, until at most so many are left; or for all of a group."""
        waited_for = [each for each in self._pending if group is None or each.call.group == group]
        self.own.shuffle(waited_for)
        for each in waited_for[most:]:
            self._pending.remove(each)
            self._wait(each)

    # Waiting and looking.

    def _wait(self, pending: _Pending) -> None:
        self.now, work = f"waiting for {pending.call.name}", pending.work
        if pending.looked is not None:
            pending.looked.wait()
            return
        ways: list[Callable[[], Any]] = [work.wait, lambda: _in_thread(work.wait)]
        if isinstance(work, dist.Work) and pending.call.has_future:
            ways += [lambda: work.wait(GROUP_TIMEOUT), lambda: work.get_future().wait()]
        self.own.choice(ways)()
        self._done(pending.call, pending.made)

    def _done(self, call: Call, made: float) -> None:
        if call.name.endswith("barrier"):
            self.report.barriers[call.name] = (made, time.monotonic())
        self._look(call)

    def _look(self, call: Call) -> None:
        for result in call.results():
            got = self._planted(result.got, "value")
            bits = _bytes(got, result)
            if difference := _difference(got, bits, result):
                self.wrong.append(f"{result.name}: {difference}")
            said = self._planted(got, "rank" if result.shared else "run")
            digest = hashlib.blake2b(bits if said is got else _bytes(said, result)).hexdigest()
            (self.report.shared if result.shared else self.report.digests)[result.name] = digest

    def _planted(self, got: torch.Tensor, kind: str) -> torch.Tensor:
        if self._fault is None or self._fault.kind != kind or not got.numel():
            return got
        self._fault = None
        changed = raw(got).clone()
        changed[0] ^= 1
        return changed.view(got.dtype).view(got.shape)

    def _loiter(self) -> None:
        """Only makes ranks fast and slow."""
        if self.own.random() < (0.6 if self._slow else 0.2):
            time.sleep(self.own.random() * (_SLOW_LOITER_SECONDS if self._slow else _LOITER_SECONDS))


def _in_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


def _made(calls: list[Call]) -> None:
    for call in calls:
        if (work := call.start()) is not None:
            work.wait()


def _bytes(tensor: torch.Tensor, result: Result) -> bytes:
    if result.kind == "moved":
        return raw(tensor).numpy().tobytes()
    return canonical(tensor, signs_of_zeros=result.kind == "reduced").numpy().tobytes()


def _difference(got: torch.Tensor, bits: bytes, result: Result) -> str:
    wanted = result.wanted
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f"got {got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    wanted_bits = _bytes(wanted, result)
    if bits == wanted_bits:
        return ""
    item = got.element_size()
    ours = torch.frombuffer(bytearray(bits), dtype=torch.uint8).view(-1, item)
    right = torch.frombuffer(bytearray(wanted_bits), dtype=torch.uint8).view(-1, item)
    places = (ours != right).any(1).nonzero().flatten()
    first = int(places[0])
    numbers = f"{_shown(got, first)}, not {_shown(wanted, first)}"
    return f"{len(places)} of {got.numel()} elements are wrong, the first at {first}: {numbers}"


def _shown(tensor: torch.Tensor, place: int) -> str:
    number = flat(tensor)[place : place + 1]
    return f"{number.tolist()[0]} (bytes {raw(number).tolist()})"


def play_on_rank(rank: int, program: Program, run: Run, fault: Fault | None) -> Report:
    warnings.simplefilter("ignore")  # some of the forms are deprecated
    torch.set_num_threads(1)
    player = Player(program, run, rank, fault)
    # Groups have the variables of the time when they are made.
    with mock.patch.dict(os.environ, {**run.variables, **program.world.variables(rank)}):
        try:
            report = player.play()
        except Exception as error:
            raise AssertionError("\n".join([f"in {player.now}", *player.wrong[:_MOST_WRONG]])) from error
    assert not player.wrong, "\n".join(player.wrong[:_MOST_WRONG])
    return report
