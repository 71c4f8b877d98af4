"""A world of four ranks on two machines that plays features on one backend, and how a feature may end there.

A world costs a fraction of a second (forked.py), so one that a feature has spoiled is simply replaced.
"""

from __future__ import annotations

import os
import shutil
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import forked
import torch
import torch.distributed as dist

from features.rank import GROUP_TIMEOUT, RANKS_PER_MACHINE, SIZE, Rank

# More than GROUP_TIMEOUT: a group that ends its calls by itself shows an error, not a hang. More than inductor needs on
# four ranks of a busy machine. Less than pytest's timeout.
FEATURE_SECONDS = 240
GRACE_SECONDS = 3  # for the other ranks, once one has failed
_VARIABLES = {"TORCH_FR_BUFFER_SIZE": "100"}


@dataclass(frozen=True)
class Outcome:
    word: str  # ok, wrong (an assertion), error (an exception), hang, or died (the process)
    text: str = ""

    def __str__(self) -> str:
        return self.word if not self.text else f"{self.word}: {self.text}"


class World:
    """Plays until a feature fails; then it is spoiled and good for nothing but `end`."""

    def __init__(self, backend: str, with_group: bool) -> None:
        context = forked.context()
        self.spoiled = False
        self._with_group = with_group
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(SIZE):
            here, there = context.Pipe()
            rank = Rank(number, backend, self._store.port)
            process = context.Process(target=_serve, args=(rank, there, with_group), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def play(self, function: Callable[[Rank], None]) -> Outcome:
        for pipe in self._pipes:
            pipe.send(function)
        answers = self._answers()
        self.spoiled = any(outcome.word != "ok" for outcome in answers)
        order = ["died", "wrong", "error", "hang", "ok"]  # a death is an error to the others
        return min(answers, key=lambda outcome: order.index(outcome.word))

    def end(self) -> list[int | None]:
        """The ranks' exit codes. Those of a spoiled world are killed."""
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            if self.spoiled:
                process.kill()
            pipe.close()
        for process in self._processes:
            process.join(GRACE_SECONDS)
            process.kill()
        shutil.rmtree(Rank(0, "", self._store.port).folder(""), ignore_errors=True)
        return [process.exitcode for process in self._processes]

    def _answers(self) -> list[Outcome]:
        answers = dict.fromkeys(self._pipes, Outcome("hang", "a rank does not come back"))
        until = time.monotonic() + FEATURE_SECONDS
        waiting = set(self._pipes)
        while waiting and (ready := wait(waiting, max(until - time.monotonic(), 0))):
            for pipe in ready:
                assert isinstance(pipe, Connection)
                waiting.discard(pipe)
                answers[pipe] = _heard(pipe)
                if answers[pipe].word != "ok":
                    until = min(until, time.monotonic() + GRACE_SECONDS)
        return list(answers.values())


class Worlds:
    """The present world of each backend: another for another area, and after a failure."""

    def __init__(self) -> None:
        self.faults: list[str] = []  # worlds that did not end well though all features did
        self._present: dict[str, tuple[str, World]] = {}

    def play(self, backend: str, area: str, function: Callable[[Rank], None], with_group: bool) -> Outcome:
        if self._present.get(backend, ("", None))[0] != area:
            self._end(backend)
            self._present[backend] = (area, World(backend, with_group))
        world = self._present[backend][1]
        outcome = world.play(function)
        if world.spoiled:
            self._end(backend)
        return outcome

    def end(self) -> None:
        for backend in list(self._present):
            self._end(backend)

    def _end(self, backend: str) -> None:
        if present := self._present.pop(backend, None):
            area, world = present
            codes = world.end()
            if not world.spoiled and any(codes):
                self.faults.append(f"{area} on {backend}: the ranks ended with {codes}")


def _heard(pipe: Connection) -> Outcome:
    try:
        answer: Outcome = pipe.recv()
    except EOFError:
        return Outcome("died", "a rank's process has ended")
    return answer


def _serve(rank: Rank, pipe: Connection, with_group: bool) -> None:
    os.environ.update(_VARIABLES)
    os.environ["FAIRRING_MACHINE"] = f"machine{rank.number // RANKS_PER_MACHINE}"
    warnings.simplefilter("ignore")  # half of the calls are deprecated somewhere
    if with_group:
        rank.init("world")
    while True:
        try:
            function = pipe.recv()
        except EOFError:
            break
        pipe.send(_played(function, rank))
    if dist.is_initialized():
        dist.destroy_process_group()


def _played(function: Callable[[Rank], Any], rank: Rank) -> Outcome:
    torch.manual_seed(0)
    try:
        function(rank)
    except AssertionError:
        return Outcome("wrong", f"rank {rank.number}: {traceback.format_exc()}")
    except Exception:
        return Outcome("error", f"rank {rank.number}: {traceback.format_exc()}")
    return Outcome("ok")


assert GROUP_TIMEOUT.total_seconds() < FEATURE_SECONDS
