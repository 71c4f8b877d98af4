"""Ranks: processes on this machine that carry out functions of a test, each as one rank of a world.

They are started once and kept: forked from a process that has imported torch, or, where that would not do, by
themselves. For CUDA it would not: a process can't use it whose parent has asked for devices, and importing torch's
compiler asks (in 2.11). A function is called as function(rank, *arguments) in every process at once; its results
come back in rank order, and exceptions are raised here with their tracebacks.
"""

from __future__ import annotations

import faulthandler
import gc
import inspect
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any
from unittest import mock

import forked
import torch
import torch.distributed as dist

TIMEOUT_SECONDS = int(os.environ.get("RANKS_TIMEOUT_SECONDS", "120"))
_STACKS_SECONDS = 3  # for a rank to write more of its stacks


class RankError(AssertionError):
    """A function raised on a rank, or did not come back; the text holds the rank's traceback."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a function on a rank: its result, or a text that says why there is none."""

    word: str  # ok, wrong (an assertion), error (another exception), hang, or died (the process)
    text: str = ""
    result: Any = None

    def __str__(self) -> str:
        return self.word if not self.text else f"{self.word}: {self.text}"


class Ranks:
    """`size` processes; the store that they may meet in is this process's."""

    def __init__(
        self,
        size: int,
        environment: Mapping[str, str] | None = None,
        of_rank: Sequence[Mapping[str, str]] | None = None,
        patience_seconds: float = TIMEOUT_SECONDS,
        forks: bool = True,
        grace_seconds: float | None = None,
    ) -> None:
        """environment: of all ranks. of_rank: of each one besides. patience_seconds: with each function.

        grace_seconds: for the other ranks, once one has raised; the same patience if None.

        forks: else each is started by itself, which takes seconds, and has its variables when it imports torch.
        """
        context = forked.context() if forks else multiprocessing.get_context("spawn")
        self.size = size
        self._patience_seconds, self._grace_seconds = patience_seconds, grace_seconds
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._pipes: list[Connection] = []
        self._stacks_of: list[Connection] = []
        self._processes = []
        for rank in range(size):
            here, there = context.Pipe()
            stacks, stacks_there = context.Pipe(duplex=False)
            variables = {**(environment or {}), **(of_rank[rank] if of_rank else {})}
            process = context.Process(target=_serve, args=(rank, there, stacks_there, variables), daemon=True)
            from_the_start = {} if forks else {**forked.VARIABLES, **forked.RESOLVER, **variables}
            with mock.patch.dict(os.environ, from_the_start):
                process.start()
            there.close()
            stacks_there.close()
            self._pipes.append(here)
            self._stacks_of.append(stacks)
            self._processes.append(process)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, function: Callable[..., Any], *arguments: Any, on: list[int] | None = None) -> list[int]:
        """Begins the call on those ranks (default: all) and returns them, for `finish`."""
        ranks = list(range(self.size)) if on is None else on
        for rank in ranks:
            self._pipes[rank].send((function, arguments))
        return ranks

    def outcomes(self, ranks: list[int]) -> list[Outcome]:
        """The outcomes of a call that was begun, in the order of `ranks`. If a rank does not return, all are ended."""
        answers: dict[int, Outcome] = {}
        pipes: dict[Any, int] = {self._pipes[rank]: rank for rank in ranks}
        until = time.monotonic() + self._patience_seconds
        while pipes and (left := until - time.monotonic()) > 0:
            for pipe in wait(pipes, left):
                rank = pipes.pop(pipe)
                answers[rank] = self._heard(rank)
                if answers[rank].word != "ok" and self._grace_seconds is not None:
                    until = min(until, time.monotonic() + self._grace_seconds)
        for rank in pipes.values():
            answers[rank] = Outcome("hang", f"did not come back. Its threads:\n{self._stacks(rank)}")
        if pipes:
            self.kill()
        return [answers[rank] for rank in ranks]

    def finish(self, ranks: list[int]) -> list[Any]:
        """The results of a call that was begun. Raises RankError."""
        answers = self.outcomes(ranks)
        failed = [(rank, answer) for rank, answer in zip(ranks, answers, strict=True) if answer.word != "ok"]
        if failed:  # all of them: the first may only say that it waited for another
            raise RankError("\n".join(f"rank {rank} of {self.size}:\n{answer.text}" for rank, answer in failed))
        return [answer.result for answer in answers]

    def _heard(self, rank: int) -> Outcome:
        try:
            answer: Outcome = self._pipes[rank].recv()
        except (EOFError, ConnectionError):
            self._processes[rank].join(TIMEOUT_SECONDS)
            return Outcome("died", f"its process has ended, with code {self._processes[rank].exitcode}")
        return answer

    def _stacks(self, rank: int) -> str:
        """The stacks of the rank's threads, which it writes when it gets the signal."""
        self.signal(rank, signal.SIGUSR1)
        stacks, text = self._stacks_of[rank], b""
        while stacks.poll(_STACKS_SECONDS) and (more := os.read(stacks.fileno(), 1 << 16)):
            text += more
        return text.decode(errors="replace")

    def signal(self, rank: int, signum: int) -> None:
        os.kill(self._processes[rank].pid or 0, signum)

    def run(self, function: Callable[..., Any], *arguments: Any, on: list[int] | None = None) -> list[Any]:
        """Calls the function on those ranks (default: all) and returns their results."""
        return self.finish(self.start(function, *arguments, on=on))

    def init(self, backend: str = "fairring", timeout_seconds: float = 60) -> None:
        """The default group in all processes, over this process's store."""
        self.run(init_group, self.size, self.store.port, backend, timeout_seconds)

    def kill_one(self, rank: int) -> None:
        """Returns when its process has ended."""
        self._processes[rank].kill()
        self._processes[rank].join()

    def kill(self) -> None:
        for process in self._processes:
            process.kill()

    def close(self) -> list[int | None]:
        """Lets the processes end by themselves; returns their exit codes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(TIMEOUT_SECONDS)
        codes = [process.exitcode for process in self._processes]
        self.kill()
        return codes


def on_ranks(world: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a test of what every rank of that fixture does: function([rank,] *parameters of the test)."""

    def test_of(body: Callable[..., None]) -> Callable[..., None]:
        names = list(inspect.signature(body).parameters)
        takes_rank = names[:1] == ["rank"]
        names = names[takes_rank:]

        def on_rank(rank: int, *arguments: Any) -> None:
            body(*[rank] * takes_rank, *arguments)

        def test(**values: Any) -> None:
            values[world].run(on_rank, *(values[name] for name in names))

        # Not functools.wraps: pytest would take the function below it for the test.
        test.__name__, test.__doc__, test.__module__ = body.__name__, body.__doc__, body.__module__
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in (world, *names)]
        test.__dict__.update(__signature__=inspect.Signature(parameters), on_rank=on_rank)
        # The ranks look it up there.
        on_rank.__module__, on_rank.__qualname__ = body.__module__, f"{body.__name__}.on_rank"
        return test

    return test_of


def init_group(rank: int, size: int, port: int, backend: str, timeout_seconds: float) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout_seconds)
    )


def backend_of(group: Any = None, device: str = "cpu") -> Any:
    """The part of the group, or of the default one, that serves the device."""
    of: Any = group or dist.group.WORLD
    return of._get_backend(torch.device(device))


def all_reduce_ones(_rank: int, elements: int) -> float:
    tensor = torch.ones(elements)
    dist.all_reduce(tensor)
    return tensor.sum().item()


def _serve(rank: int, pipe: Connection, stacks: Connection, environment: Mapping[str, str]) -> None:
    gc.freeze()  # as the nursery of failures does
    os.environ.update(environment)
    faulthandler.register(signal.SIGUSR1, stacks.fileno(), all_threads=True)
    import fairring  # noqa: F401  registers the backend on torch before 2.15

    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = Outcome("ok", result=function(rank, *arguments))
        except AssertionError:
            answer = Outcome("wrong", traceback.format_exc())
        except BaseException:
            answer = Outcome("error", traceback.format_exc())
        pipe.send(answer)
