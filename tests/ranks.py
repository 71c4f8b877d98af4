"""Ranks: processes on this machine that carry out functions of a test, each as one rank of a world.

They are started once and kept: forked from a process that has imported torch, or, where that would not do, by
themselves. For CUDA it would not: a process can't use it whose parent has asked for devices, and importing torch's
compiler asks (in 2.11). A function is called as function(rank, *arguments) in every process at once; its results
come back in rank order, and exceptions are raised here with their tracebacks.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

import forked
import torch
import torch.distributed as dist

TIMEOUT_SECONDS = 120


class RankError(AssertionError):
    """A function raised on a rank, or did not come back; the text holds the rank's traceback."""


class Ranks:
    """`size` processes; the store that they may meet in is this process's."""

    def __init__(
        self,
        size: int,
        environment: Mapping[str, str] | None = None,
        of_rank: Sequence[Mapping[str, str]] | None = None,
        patience_seconds: float = TIMEOUT_SECONDS,
        forks: bool = True,
    ) -> None:
        """environment: of all ranks. of_rank: of each one besides. patience_seconds: with each function.

        forks: else each is started by itself, which takes seconds, and has its variables when it imports torch.
        """
        context = forked.context() if forks else multiprocessing.get_context("spawn")
        self.size = size
        self._patience_seconds = patience_seconds
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(size):
            here, there = context.Pipe()
            variables = {**(environment or {}), **(of_rank[rank] if of_rank else {})}
            process = context.Process(target=_serve, args=(rank, there, variables), daemon=True)
            from_the_start = {} if forks else {**forked.VARIABLES, **forked.RESOLVER, **variables}
            with mock.patch.dict(os.environ, from_the_start):
                process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def start(self, function: Callable[..., Any], *arguments: Any, on: list[int] | None = None) -> list[int]:
        """Begins the call on those ranks (default: all) and returns them, for `finish`."""
        ranks = list(range(self.size)) if on is None else on
        for rank in ranks:
            self._pipes[rank].send((function, arguments))
        return ranks

    def finish(self, ranks: list[int]) -> list[Any]:
        """The results of a call that was begun. Raises RankError."""
        answers = []
        for rank in ranks:
            if not self._pipes[rank].poll(self._patience_seconds):
                self.kill()
                raise RankError(f"rank {rank} of {self.size} did not come back within {self._patience_seconds} s")
            answers.append(self._pipes[rank].recv())
        errors = [
            f"rank {rank} of {self.size}:\n{error}" for rank, (error, _) in zip(ranks, answers, strict=True) if error
        ]
        if errors:  # all of them: the first may only say that it waited for another
            raise RankError("\n".join(errors))
        return [result for _, result in answers]

    def run(self, function: Callable[..., Any], *arguments: Any, on: list[int] | None = None) -> list[Any]:
        """Calls the function on those ranks (default: all) and returns their results."""
        return self.finish(self.start(function, *arguments, on=on))

    def init(self, backend: str = "fairring", timeout_seconds: float = 60) -> None:
        """The default group in all processes, over this process's store."""
        self.run(init_group, self.size, self.store.port, backend, timeout_seconds)

    def kill(self) -> None:
        for process in self._processes:
            process.kill()

    def close(self) -> list[int | None]:
        """Lets the processes end by themselves; their exit codes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(TIMEOUT_SECONDS)
        codes = [process.exitcode for process in self._processes]
        self.kill()
        return codes


def init_group(rank: int, size: int, port: int, backend: str, timeout_seconds: float) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout_seconds)
    )


def all_reduce_ones(_rank: int, elements: int) -> float:
    tensor = torch.ones(elements)
    dist.all_reduce(tensor)
    return tensor.sum().item()


def _serve(rank: int, pipe: Connection, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    import fairring  # noqa: F401  registers the backend on torch before 2.15

    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer: tuple[str | None, Any] = (None, function(rank, *arguments))
        except BaseException:
            answer = (traceback.format_exc(), None)
        pipe.send(answer)
