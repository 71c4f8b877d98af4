"""One case played on the stage: its ranks, what is done to them from outside, and what came of it."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from failures.holdings import children_of
from failures.stage import PATIENCE_SECONDS, Stage, StageError


@dataclass(frozen=True)
class Case:
    """A row of the table. event: what is done from outside once the play runs.

    expected: by rank, regular expressions that are all found in what it raised; a rank without any passes, and one with
    None is not asked, since it is dead or may go either way.
    """

    name: str
    title: str
    body: str
    expected: Mapping[int, tuple[str, ...] | None]
    event: Callable[[Play], None] | None = None
    layout: str = "2x2"
    present: tuple[int, ...] | None = None  # ranks that come at all; None: all
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 60  # of the group, seconds
    module: str = "failures.bodies"

    @property
    def size(self) -> int:
        machines, ranks = self.layout.split("x")
        return int(machines) * int(ranks)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one rank. seconds: from the event to its exception or last call's end; None if it said nothing."""

    kind: str | None  # the exception's type; None: no exception
    text: str
    seconds: float | None
    left: Mapping[str, Mapping[str, int]] | None  # what it still held after destroy; None: it was killed before
    destroy_seconds: float
    code: int
    log: str


class Play:
    def __init__(self, stage: Stage, case: Case) -> None:
        self.stage = stage
        self.case = case
        self.nurseries = stage.nurseries(case.layout)
        self.ranks = list(range(case.size)) if case.present is None else list(case.present)
        self._began = time.monotonic()
        self._orphans: list[int] = []  # pidfds
        env = {"MASTER_PORT": str(stage.next_port()), "FAIRRING_MACHINE": "", **case.env}
        self.pids = {
            rank: stage.fork(
                self.nurseries[rank],
                ("failures.rank", "live"),
                (case.module, case.body, rank, case.size, case.timeout),
                env,
            )
            for rank in self.ranks
        }

    def run(self) -> dict[int, Outcome]:
        """The case from beginning to end; kills what is left of it, whatever happens."""
        try:
            if self.case.event is not None:
                self.case.event(self)
            for rank in self.ranks:
                self.await_end(rank)
        finally:
            self.end()
        return {rank: self._outcome(rank) for rank in self.ranks}

    def end(self) -> None:
        for pid in self.pids.values():
            if pid not in self.stage.codes:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.stage.await_(lambda: all(pid in self.stage.codes for pid in self.pids.values()), 60, "the killed")
        while self._orphans:
            orphan = self._orphans.pop()
            ended = select.select([orphan], [], [], PATIENCE_SECONDS)[0]
            os.close(orphan)
            if not ended:
                raise StageError(f"a child of a killed rank of {self.case.name} runs on")

    # --- what events are made of

    def mark(self) -> None:
        """From now on time is counted."""
        self._began = time.monotonic()

    def hear(self, word: str, ranks: list[int] | None = None) -> None:
        """Until the ranks (default: all) have said the word."""
        for rank in self.ranks if ranks is None else ranks:
            pid = self.pids[rank]
            what = f"rank {rank} of {self.case.name} to say {word!r}"
            self.stage.await_(lambda pid=pid: self._said(pid, word) or pid in self.stage.codes, PATIENCE_SECONDS, what)
            if not self._said(pid, word):
                raise StageError(
                    f"{what}, but it ended; it said {self.stage.heard.get(pid)} and wrote {self.log(rank)}"
                )

    def tell(self, word: str, ranks: list[int] | None = None) -> None:
        for rank in self.ranks if ranks is None else ranks:
            self.stage.tell(self.pids[rank], word)

    def go(self) -> None:
        self.hear("ready")
        self.tell("go")
        self.mark()

    def signal(self, rank: int, signum: int) -> None:
        self.mark()
        os.kill(self.pids[rank], signum)

    def kill(self, rank: int) -> None:
        """Its children too have to end by themselves: the play waits for them."""
        self._orphans += [os.pidfd_open(child) for child in children_of(self.pids[rank])]
        self.signal(rank, signal.SIGKILL)

    def await_end(self, rank: int) -> None:
        pid = self.pids[rank]
        self.stage.await_(lambda: pid in self.stage.codes, PATIENCE_SECONDS, f"rank {rank} of {self.case.name} to end")

    def set_link(self, machine: int, up: bool) -> None:
        self.mark()
        self.stage.lab.set_link(machine, up)

    def others(self, rank: int) -> list[int]:
        return [other for other in self.ranks if other != rank]

    def wait_until(self, seconds: float) -> None:
        """Attends to the ranks for so long: for cases that are about a length of time."""
        end = time.monotonic() + seconds
        self.stage.await_(lambda: time.monotonic() >= end, seconds + 1, "time")

    def machine(self, rank: int) -> int:
        return self.stage.machine_of[self.nurseries[rank]]

    def log(self, rank: int) -> str:
        return self.stage.log(self.nurseries[rank])

    def said(self, rank: int, word: str) -> bool:
        return self._said(self.pids[rank], word)

    def words(self, rank: int, word: str) -> tuple[Any, ...]:
        """The rank's message with this word."""
        return next(message for message in self.stage.heard[self.pids[rank]] if message[0] == word)

    def _said(self, pid: int, word: str) -> bool:
        return any(message[0] == word for message in self.stage.heard.get(pid, []))

    def _outcome(self, rank: int) -> Outcome:
        pid = self.pids[rank]
        messages: dict[Any, tuple[Any, ...]] = {message[0]: message for message in self.stage.heard.get(pid, [])}
        raised, passed, left = messages.get("raised"), messages.get("passed"), messages.get("left")
        last = raised or passed
        return Outcome(
            kind=raised[1] if raised else None,
            text=raised[2] if raised else "",
            seconds=None if last is None else last[-1] - self._began,
            left=left[1] if left else None,
            destroy_seconds=left[2] if left else 0.0,
            code=self.stage.codes[pid],
            log=self.log(rank),
        )
