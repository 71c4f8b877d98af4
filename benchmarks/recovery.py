"""How long a training stands still when ranks die, fall silent or join.

    python benchmarks/recovery.py --layouts 2x2,4x2 --times 30 --json recovery.json

Ranks that reconfigure train in the lab. Again and again a rank, a machine or two machines are killed, a rank is
stopped, or the link of a machine is cut; the others go on without it, and then ranks join until all are there. Which of
them are gone is known to this process, the scheduler, which tells the others as soon as all have raised an error.
Counted are the seconds from the fault

- `error`: until the last of the others has raised its error. A silent rank counts as dead after
  FAIRRING_HEARTBEAT_TIMEOUT and a quarter, which `--heartbeat` sets;
- `step`: until the last of the others has done its next step: the error, the scheduler's word, `reconfigure`, the
  agreement on the state, and the step itself;

and `join`: from the scheduler's word that new ranks are ready until the last member has done a step with them, the
parameters' way to them included. A step is a pause, for what an accelerator computes, and an all-reduce.

`--cost` measures instead what it costs to be able to go on: calls of a group that was reconfigured and of one that was
not, in turns, on two machines of two.

`--remake` measures there how long it takes to have a group that has done an all-reduce of 4 B, on the slowest rank: by
`reconfigure` of the same four, by `shrink_group` of three of them, by `new_group` and by `destroy_process_group` and
`init_process_group`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from goodput import Job, Training
from rich.console import Console
from rich.table import Table

from fairring import lab
from fairring.lab import names, namespaces

TIMEOUT = timedelta(seconds=120)
PATIENCE_SECONDS = 150
KINDS = ("kill a rank", "kill a machine", "kill two machines", "stop a rank", "cut a link")
CALLS = 400  # of a size in a turn of --cost
c10d: Any = dist.distributed_c10d


# --- in the ranks


def member(scheduler: Connection, machine_pid: int, variables: dict[str, str], job: Job) -> None:
    namespaces.enter_those_of(machine_pid)  # before this process has a second thread
    os.environ.update(variables)
    dist.init_process_group("fairring", store=dist.HashStore(), rank=0, world_size=1, enable_reconfigure=True)
    training = Training(job)
    scheduler.send(("handle", c10d._get_reconfigure_handle()))
    while (members := scheduler.recv()) is not None:
        try:
            c10d._reconfigure(*members, timeout=TIMEOUT).wait()
            training.catch_up()
            training.step()
            scheduler.send(("step", time.monotonic()))
            news = torch.zeros(1)
            while not news.item():
                training.step()
                news.fill_(scheduler.poll())
                dist.all_reduce(news, op=dist.ReduceOp.MAX)  # all go and listen in the same step
        except dist.DistBackendError:
            scheduler.send(("error", time.monotonic()))
    scheduler.send(("wrong", training.wrong()))
    dist.destroy_process_group()


# --- the scheduler


@dataclass
class Member:
    machine: int
    process: Any
    pipe: Connection
    handle: str = ""

    def hear(self, word: str) -> Any:
        """The message that comes with the word. Other words are left over from earlier rounds and are skipped."""
        while self.pipe.poll(PATIENCE_SECONDS):
            if (message := self.pipe.recv())[0] == word:
                return message[1]
        raise TimeoutError(f"process {self.process.pid} on machine {self.machine} did not say {word!r}")


@dataclass
class Times:
    """Seconds, of each time."""

    error: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)
    join: list[float] = field(default_factory=list)


class Scheduler:
    def __init__(self, machines: int, ranks: int, job: Job, heartbeat: str, rate: str) -> None:
        self._ranks, self._job = ranks, job
        self._variables = {
            "FAIRRING_HEARTBEAT_TIMEOUT": heartbeat,
            "TP_SOCKET_IFNAME": "eth0",
            "TORCH_FR_BUFFER_SIZE": "0",  # else torch's flight recorder takes seconds of each rank when a group fails
        }
        self._lab = lab.Lab(["sleep", "infinity"], [1] * machines, rate, network="namespaces").start()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torch", "fairring", "goodput"])
        self._uuids = itertools.count(1)
        self._random = random.Random(0)
        self._members: list[Member] = []
        self._fill()

    def close(self) -> int:
        """How many parameters do not follow from the steps done."""
        for one in self._members:
            one.pipe.send(None)
        wrong = sum(one.hear("wrong") for one in self._members)
        for one in self._members:
            one.process.join()
        self._lab.close()
        return int(wrong)

    def measure(self, kind: str, times: int) -> Times:
        found = Times()
        for _ in range(times):
            time.sleep(self._random.uniform(0.05, 0.15))  # steps, at a random moment of one of which it happens
            gone, undo = self._chosen(kind)
            others = [one for one in self._members if one not in gone]
            began = time.monotonic()
            self._strike(kind, gone)
            found.error.append(max(one.hear("error") for one in others) - began)
            found.step.append(self._join(others) - began)
            undo()
            found.join.append(self._fill())
        return found

    def _chosen(self, kind: str) -> tuple[list[Member], Callable[[], None]]:
        """The members to be removed, and the function that makes their place ready for others."""
        last = max(one.machine for one in self._members)
        if kind == "cut a link":
            gone = [one for one in self._members if one.machine == last]
            return gone, lambda: self._mend(last, gone)
        machines = {"kill a machine": [last], "kill two machines": [last - 1, last]}.get(kind)
        gone = (
            [self._random.choice(self._members)]
            if machines is None
            else [one for one in self._members if one.machine in machines]
        )
        return gone, lambda: self._bury(gone)

    def _strike(self, kind: str, gone: list[Member]) -> None:
        if kind == "cut a link":
            self._lab.set_link(gone[0].machine, False)
            return
        for one in gone:
            os.kill(one.process.pid, signal.SIGSTOP if kind == "stop a rank" else signal.SIGKILL)

    def _mend(self, machine: int, gone: list[Member]) -> None:
        self._lab.set_link(machine, True)
        for one in gone:
            one.hear("error")

    def _bury(self, gone: list[Member]) -> None:
        for one in gone:
            one.process.kill()
            one.process.join()
            one.pipe.close()
            self._members.remove(one)

    def _fill(self) -> float:
        """Ranks for the places that are free; the seconds until all train."""
        there = Counter(one.machine for one in self._members)
        new = [
            self._start(machine)
            for machine in range(len(self._lab.machines))
            for _ in range(self._ranks - there[machine])
        ]
        for one in new:
            one.handle = one.hear("handle")
        self._members = sorted([*self._members, *new], key=lambda one: one.machine)
        began = time.monotonic()
        return self._join(self._members) - began

    def _start(self, machine: int) -> Member:
        here, there = self._context.Pipe()
        arguments = (there, self._lab.pid(machine), self._variables, self._job)
        process: Any = self._context.Process(target=member, args=arguments, daemon=True)
        process.start()
        there.close()
        return Member(machine, process, here)

    def _join(self, members: list[Member]) -> float:
        """When the last of them has done a step with the others."""
        uuid, handles = next(self._uuids), [one.handle for one in members]
        for one in members:
            one.pipe.send((uuid, handles))
        return max(float(one.hear("step")) for one in members)


# --- what it costs


class Rank:
    """One of four that meet in a store of their own."""

    def __init__(self, rank: int, port: int) -> None:
        os.environ["FAIRRING_MACHINE"] = f"machine {rank // 2}"
        torch.set_num_threads(1)
        self._rank, self._uuids = rank, itertools.count(1)
        self._store = dist.TCPStore("127.0.0.1", port, is_master=False)
        self.init()

    def init(self, reconfigurable: bool = True) -> None:
        options: dict[str, Any] = {"enable_reconfigure": True} if reconfigurable else {}
        dist.init_process_group(
            "fairring", store=self._store, rank=self._rank, world_size=4, timeout=TIMEOUT, **options
        )

    def reconfigure(self) -> None:
        uuid = next(self._uuids)
        self._store.set(f"handle {uuid} {self._rank}", c10d._get_reconfigure_handle())
        handles = [self._store.get(f"handle {uuid} {one}").decode() for one in range(4)]
        c10d._reconfigure(uuid, handles, timeout=TIMEOUT).wait()


def timed(rank: int, port: int, turns: int, parent: Connection) -> None:
    """Seconds of each call, by elements and by whether the group was reconfigured."""
    Rank(rank, port).reconfigure()
    groups: dict[str, Any] = {"reconfigured": None, "plain": dist.new_group()}
    found: dict[str, dict[int, list[float]]] = {name: {1: [], 1 << 18: []} for name in groups}
    for turn in range(turns):
        for elements in (1, 1 << 18):
            for name, group in list(groups.items())[:: 1 if turn % 2 == 0 else -1]:
                tensor = torch.zeros(elements)
                for number in range(CALLS + CALLS // 10):
                    began = time.perf_counter()
                    dist.all_reduce(tensor, group=group)
                    if number >= CALLS // 10:
                        found[name][elements].append(time.perf_counter() - began)
    parent.send(found)
    dist.barrier()


def remade(rank: int, port: int, times: int, parent: Connection) -> None:
    """Seconds of each time, by the way to have a group."""
    one = Rank(rank, port)
    one.reconfigure()
    found: dict[str, list[float]] = {}

    def time_first_call(way: str, make: Callable[[], Any]) -> Any:
        dist.barrier()
        began = time.perf_counter()
        group = make()
        dist.all_reduce(torch.zeros(1), group=group)
        found.setdefault(way, []).append(time.perf_counter() - began)
        return group

    def start_again() -> None:
        dist.destroy_process_group()
        one.init(reconfigurable=False)

    for _ in range(times):
        time_first_call("reconfigure", one.reconfigure)
        group = time_first_call("new_group", dist.new_group)
        dist.barrier()
        if rank == 3:
            dist.destroy_process_group(group)
            dist.barrier()
            found.setdefault("shrink_group", []).append(0.0)  # it has no part in it
        else:
            group = time_first_call("shrink_group", partial(dist.shrink_group, [3], group))
            dist.destroy_process_group(group)
        time_first_call("destroy and init", start_again)
        dist.destroy_process_group()
        one.init()
        one.reconfigure()
    parent.send(found)
    dist.barrier()


def in_four(function: Callable[..., None], times: int) -> list[Any]:
    """Calls function(rank, port of the store, times, pipe) in four ranks and returns the messages."""
    # Else both ends of a connection to the store ask the name server for this name, which may take five seconds.
    names.add("::ffff:127.0.0.1 localhost\n")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(4)]
    os.environ["TP_SOCKET_IFNAME"] = "lo"
    os.environ["TORCH_FR_BUFFER_SIZE"] = "0"
    ranks = [context.Process(target=function, args=(rank, store.port, times, pipes[rank][1])) for rank in range(4)]
    for one in ranks:
        one.start()
    of_ranks = [here.recv() for here, _ in pipes]
    for one in ranks:
        one.join()
    return of_ranks


def print_remade(times: int, path: Path | None) -> None:
    of_ranks = in_four(remade, times)
    table = Table("way", "times", "median", "worst")
    rows: dict[str, list[float]] = {}
    for way in of_ranks[0]:
        rows[way] = [max(seconds) for seconds in zip(*(of_rank[way] for of_rank in of_ranks), strict=True)]
        table.add_row(way, str(times), f"{statistics.median(rows[way]) * 1e3:.1f} ms", f"{max(rows[way]) * 1e3:.1f} ms")
    Console(width=100).print(table)
    if path:
        path.write_text(json.dumps({"seconds, by way": rows, "conditions": conditions()}, indent=1))


def print_cost(turns: int, path: Path | None) -> None:
    of_ranks = in_four(timed, turns)
    table = Table("bytes", *of_ranks[0])
    rows: dict[int, dict[str, float]] = {}
    for elements in of_ranks[0]["plain"]:
        row = {
            name: statistics.median(call for of_rank in of_ranks for call in of_rank[name][elements]) * 1e6
            for name in of_ranks[0]
        }
        rows[elements * 4] = row
        table.add_row(str(elements * 4), *(f"{microseconds:.1f} µs" for microseconds in row.values()))
    Console(width=100).print(table)
    if path:
        path.write_text(json.dumps({"microseconds, median, by bytes": rows, "conditions": conditions()}, indent=1))


# --- the table


def conditions() -> dict[str, Any]:
    return {"torch": torch.__version__, "cores": os.cpu_count(), "load": os.getloadavg()[0]}


def words(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.3f}, {max(seconds):.3f}"


@contextmanager
def scheduled(layout: str, options: argparse.Namespace) -> Iterator[Scheduler]:
    machines, _, ranks = layout.partition("x")
    job = Job(options.pause, options.elements, checkpoint=0)
    scheduler = Scheduler(int(machines), int(ranks), job, options.heartbeat, options.rate)
    yield scheduler
    if wrong := scheduler.close():
        sys.exit(f"{wrong} parameters do not follow from the steps done")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", default="2x2,4x2", help="machines x ranks (%(default)s)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of faults (%(default)s)")
    parser.add_argument("--times", type=int, default=30, help="each fault happens (%(default)s)")
    parser.add_argument("--pause", type=float, default=0.01, help="seconds of a step's computing (%(default)s)")
    parser.add_argument("--elements", type=int, default=1 << 20, help="Float32 in an all-reduce (%(default)s)")
    parser.add_argument("--heartbeat", default="1s", help="FAIRRING_HEARTBEAT_TIMEOUT (%(default)s)")
    parser.add_argument("--rate", default="none", help="of each machine's link (%(default)s)")
    parser.add_argument("--cost", type=int, metavar="TURNS", help="what it costs to be able to go on")
    parser.add_argument("--remake", type=int, metavar="TIMES", help="how long it takes to have a group")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.cost or options.remake:
        print_cost(options.cost, options.json) if options.cost else print_remade(options.remake, options.json)
        return
    table = Table("machines x ranks", "fault", "times", "error s", "step s", "join s", "load")
    table.caption = "seconds: median, worst"
    results: list[dict[str, Any]] = []
    for layout in options.layouts.split(","):
        with scheduled(layout, options) as scheduler:
            for kind in options.kinds.split(","):
                if kind == "kill two machines" and int(layout.partition("x")[0]) < 3:
                    continue
                found = scheduler.measure(kind, options.times)
                results.append({"layout": layout, "fault": kind, **vars(found), **conditions()})
                times = [words(one) for one in (found.error, found.step, found.join)]
                load = f"{os.getloadavg()[0]:.1f}"
                table.add_row(layout, kind, str(options.times), *times, load)
                print(layout, kind, *times, load, file=sys.stderr, flush=True)
                if options.json:
                    options.json.write_text(json.dumps(results, indent=1))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
