"""A running lab: the ranks, their output, their end. The caller's thread drives it in any call that waits.

Between such calls the ranks run on but nobody reads their output. On every way out of the context manager all processes
of the lab are dead and its network is gone; if the lab's process itself is killed, its keeper sees to that.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import final

from fairring.lab import emulated_gpus
from fairring.lab.child import Child, Setting
from fairring.lab.cluster import LabError, Place, parse_own_rates, parse_rates, place_ranks
from fairring.lab.environment import rank_environment
from fairring.lab.output import Printer
from fairring.lab.result import LabResult
from fairring.lab.sites import parse_sites
from fairring.lab.stopping import Stopping
from fairring.lab.task import Task
from fairring.lab.wiring import NETWORKS, Wiring

# With a printer the output is shown as it comes; only the last of it is kept, for the report of a failure.
_KEPT_WHEN_PRINTED = 16 * 1024
_LAST_WORDS = 2000


class LabTimeoutError(LabError):
    """Something did not happen in the given time."""


@dataclass(frozen=True)
class Cable:
    """The links of a machine, or one of them, pulled at the bridge's end: it keeps its addresses and hears nothing."""

    lab: Lab
    machine: int
    interface: int | None = None

    def set_down(self) -> None:
        self.lab.set_link(self.machine, False, self.interface)

    def set_up(self) -> None:
        self.lab.set_link(self.machine, True, self.interface)


@final
@dataclass(eq=False)
class Lab:
    """An emulated cluster that runs `command` once per rank. Raises LabError if the arguments make no sense."""

    command: Sequence[str]
    machines: Sequence[int] = (2, 2)  # ranks of each machine
    rate: str = "1gbit"  # of each machine's link in each direction, or a list; "none" for no limit
    order: str = "block"  # or "round-robin": how ranks are dealt to machines
    network: str = "auto"  # "namespaces": an error where they aren't possible; "none": all in the present network
    env: Mapping[str, str] = field(default_factory=dict)  # on top of this process's environment
    grace: float = 30.0  # seconds that the other ranks have to end by themselves after one has failed
    printer: Printer | None = None  # shows the output as it comes; without a printer all of it is in the result
    only_rank: int | None = None  # with a printer: this rank writes straight to our own output, the others are hidden
    interfaces: int = 1  # of each machine; each has a link of its own
    sites: str = "1"  # or "3,1": machines of each, in order
    site_rate: str = "none"  # of each site's uplink in each direction
    site_delay: str = "0ms"  # from one site to another, one way
    emulated_gpus: int = 0  # emulated CUDA devices of each machine; 0: the real ones
    own_rates: str = ""  # of machines whose links have another rate: "1=100mbit,3=none"

    def __post_init__(self) -> None:
        self._places = place_ranks(self.machines, self.order)
        self._rates = parse_rates(self.rate, self.interfaces)
        self._own_rates = parse_own_rates(self.own_rates, len(self.machines))
        self._sites = parse_sites(self.sites, self.site_rate, self.site_delay, len(self.machines))
        if self.network not in NETWORKS:
            raise LabError(f"network {self.network!r} is not known; it is one of {', '.join(NETWORKS)}")
        if not self.command:
            raise LabError("there is no command to run; on the command line it stands after a --")
        if self.only_rank is not None and not 0 <= self.only_rank < len(self._places):
            raise LabError(f"rank {self.only_rank} does not exist; the lab has ranks 0 to {len(self._places) - 1}")
        inherited = {**os.environ, **self.env}
        self._devices = emulated_gpus.variables(self.emulated_gpus, inherited) if self.emulated_gpus else {}
        self._stopping = Stopping(self.grace)
        self._cleanup = ExitStack()
        self._selector = self._cleanup.enter_context(selectors.DefaultSelector())
        self._tasks: list[Task] = []
        self._first_failed: int | None = None
        self._started = self._last_end = 0.0
        self._passed_on: set[int] = set()  # signals that asked the lab to end

    def __enter__(self) -> Lab:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> Lab:
        """Makes the network and starts all ranks."""
        try:
            self._wiring = Wiring(self._sites, self._rates, self._own_rates, self.network)
            self._cleanup.callback(self._wiring.close)
            self.watch(self._wiring.keeper.channel.fileno(), self._lost_keeper)
            self._warn_if_unshaped()
            self._started = time.monotonic()
            for place in self._places:
                self._tasks.append(self._start_rank(place))
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Kills all remaining processes and removes the network. May be called again."""
        self.signal(signal.SIGKILL)
        for rank in self._running():
            self._reap(self._tasks[rank])
        self._cleanup.close()

    def wait(self, timeout: float | None = None) -> LabResult:
        """Waits until all ranks have ended. timeout: seconds; past it all are killed and LabTimeoutError is raised."""
        if not self._pump(lambda: not self._running(), timeout):
            running = self._running()
            words = self._tasks[running[0]].records["stderr"].text[-_LAST_WORDS:]
            self.close()
            raise LabTimeoutError(
                f"ranks {running} still ran after {timeout} s and were killed; rank {running[0]} wrote last: {words!r}"
            )
        return LabResult(
            exit_codes=[task.child.code or 0 for task in self._tasks],
            stdout=[task.records["stdout"].text for task in self._tasks],
            stderr=[task.records["stderr"].text for task in self._tasks],
            seconds=self._last_end - self._started,
            first_failed=self._first_failed,
            unshaped_because=self._wiring.unshaped_because,
        )

    def wait_for_output(self, rank: int, text: str, timeout: float = 60) -> None:
        """Waits until the rank has written the text to stdout or stderr. Raises LabError if it ends without."""
        task = self._tasks[rank]

        def written() -> bool:
            return any(text in record.text for record in task.records.values())

        if not self._pump(lambda: written() or task.child.code is not None, timeout):
            raise LabTimeoutError(f"rank {rank} did not write {text!r} in {timeout} s")
        if not written():
            words = task.records["stderr"].text[-_LAST_WORDS:]
            raise LabError(f"rank {rank} ended with code {task.child.code} and never wrote {text!r}: {words!r}")

    def pid(self, rank: int) -> int:
        """The process of a running rank. Raises LabError if it has ended."""
        child = self._tasks[rank].child
        if child.code is not None:
            raise LabError(f"rank {rank} has no process any more: it ended with code {child.code}")
        return child.pid

    def signal(self, signum: int, rank: int | None = None) -> None:
        """Sends a signal to the process group of one rank or of every running rank."""
        for task in self._tasks if rank is None else [self._tasks[rank]]:
            task.child.signal(signum)

    def pass_on(self, signum: int) -> None:
        """A signal that asks the lab to end goes to all ranks; it starts the grace period, and a second INT kills."""
        if not self._passed_on:
            self._say(f"{signal.Signals(signum).name}: the ranks have {self.grace:g} s to end by themselves")
        self._passed_on.add(signum)
        self.signal(self._stopping.translate(signum, time.monotonic()))

    def link(self, machine: int, interface: int | None = None) -> Cable:
        return Cable(self, machine, interface)

    def set_link(self, machine: int, up: bool, interface: int | None = None) -> None:
        if self._wiring.unshaped_because is not None:
            raise LabError(f"machine {machine} has no link of its own: {self._wiring.unshaped_because}")
        self._wiring.keeper.set_link(machine, up, interface)

    def set_uplink(self, site: int, up: bool) -> None:
        """Pulls or plugs the cable between a site and the others."""
        if self._wiring.unshaped_because is not None or len(self._sites.machines) < 2:
            raise LabError(f"site {site} has no uplink: {self._wiring.unshaped_because or 'there is one site'}")
        self._wiring.keeper.set_uplink(site, up)

    def exec(self, machine: int, command: Sequence[str], timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Runs a command inside a machine and waits for it, with the environment of this process."""
        setting = Setting(self._wiring.keeper.machines[machine], {**os.environ, **self.env})
        task = Task(Child(command, setting), self._selector, lambda *_: None, None)
        self._attend(task, partial(self._reap, task))
        try:
            if not self._pump(lambda: task.child.code is not None, timeout):
                raise LabTimeoutError(f"{list(command)} on machine {machine} had not ended after {timeout} s")
        finally:
            if task.child.code is None:
                self._reap(task)
        code = task.child.code or 0
        return subprocess.CompletedProcess(command, code, task.records["stdout"].text, task.records["stderr"].text)

    def watch(self, descriptor: int, when_readable: Callable[[], None]) -> None:
        """Calls back from inside any waiting call of this lab. The descriptor stays the caller's."""
        self._selector.register(descriptor, selectors.EVENT_READ, when_readable)

    def _start_rank(self, place: Place) -> Task:
        inherited = {**os.environ, **self.env, **self._devices}
        environment = rank_environment(place, self.machines, self._wiring.meeting, inherited)
        if self._devices:  # NCCL's name of the host is that of this machine, in all namespaces
            environment["FAIRRING_MACHINE"] = f"lab{place.machine}"
        machine = self._wiring.keeper.machines[place.machine]
        child = Child(
            self.command,
            Setting(machine, environment, inherit_output=place.rank == self.only_rank),
        )
        keep = None if self.printer is None else _KEPT_WHEN_PRINTED
        task = Task(child, self._selector, partial(self._show, place.rank), keep)
        self._attend(task, partial(self._rank_ended, place))
        return task

    def _attend(self, task: Task, when_ended: Callable[[], None]) -> None:
        self._wiring.keeper.guard(task.child.pid)
        self.watch(task.child.ended, when_ended)

    def _reap(self, task: Task) -> None:
        self._selector.unregister(task.child.ended)
        task.finish()
        self._wiring.keeper.release(task.child.pid)

    def _rank_ended(self, place: Place) -> None:
        task = self._tasks[place.rank]
        self._reap(task)
        self._last_end = time.monotonic()
        if task.child.code == 0:
            return
        was_told = (task.child.code or 0) - 128 in self._passed_on  # and did as it was told
        if not was_told:
            self._show_hidden(place.rank)
        if self._first_failed is None:
            self._first_failed = place.rank
        if self._first_failed == place.rank and not was_told:
            self._say(f"rank {place.rank} on machine {place.machine} failed first, with exit code {task.child.code}")
            if self._running():
                self._say(f"the other ranks have {self.grace:g} s to end by themselves")
        self._stopping.begin(self._last_end)

    def _show(self, rank: int, stream: str, data: bytes) -> None:
        if self.printer is not None and self.only_rank is None:
            self.printer.add(rank, stream, data)

    def _show_hidden(self, rank: int) -> None:
        """Shows the last output of a failed rank that was hidden."""
        if self.printer is not None and self.only_rank not in (None, rank):
            for stream, record in self._tasks[rank].records.items():
                self.printer.add(rank, stream, record.text.encode())
                self.printer.add(rank, stream, b"")

    def _say(self, text: str) -> None:
        if self.printer is not None:
            self.printer.say(text)

    def _warn_if_unshaped(self) -> None:
        if self._wiring.unshaped_because is not None:
            self._say(self._wiring.unshaped_because)
            self._say(
                "all machines share the present network, unshaped; FAIRRING_MACHINE tells them apart for Fairring"
            )

    def _lost_keeper(self) -> None:
        raise LabError("the process that keeps the lab's network ended, so the lab ends too")

    def _running(self) -> list[int]:
        return [rank for rank, task in enumerate(self._tasks) if task.child.code is None]

    def _pump(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Attends to all events until done() or the timeout; returns done()."""
        end = None if timeout is None else time.monotonic() + timeout
        while not done():
            now = time.monotonic()
            if end is not None and now >= end:
                return False
            times = [when for when in (end, self._stopping.next_time) if when is not None]
            events = self._selector.select(max(0.0, min(times) - now) if times else None)
            for key, _ in events:
                # An earlier callback of this round may have closed it.
                if self._selector.get_map().get(key.fd) is key:
                    key.data()
            self._stop_what_is_due()
        return True

    def _stop_what_is_due(self) -> None:
        for signum in self._stopping.take_due(time.monotonic()):
            self._say(f"ranks {self._running()} still run: sending {signum.name}")
            self.signal(signum)


def run(
    command: Sequence[str],
    machines: Sequence[int] = (2, 2),
    rate: str = "1gbit",
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> LabResult:
    """Runs a command on every rank of an emulated cluster; the arguments are those of Lab and Lab.wait()."""
    with Lab(command, machines, rate, env=env or {}) as lab:
        return lab.wait(timeout)
