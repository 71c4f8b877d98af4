"""A world of four ranks on two machines that plays features on one backend (ranks.py).

A world costs a fraction of a second, so one that a feature has spoiled is simply replaced.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable

import torch
import torch.distributed as dist
from ranks import Outcome, Ranks

from features.rank import GROUP_TIMEOUT, RANKS_PER_MACHINE, SIZE, Rank

# More than GROUP_TIMEOUT: a group that ends its calls by itself shows an error, not a hang. More than inductor needs on
# four ranks of a busy machine. Less than pytest's timeout.
FEATURE_SECONDS = 240
GRACE_SECONDS = 3  # for the other ranks, once one has failed
_VARIABLES = {"TORCH_FR_BUFFER_SIZE": "100"}
_MACHINES = [{"FAIRRING_MACHINE": f"machine{rank // RANKS_PER_MACHINE}"} for rank in range(SIZE)]


class World:
    """Plays until a feature fails; then it is spoiled and good for nothing but `end`."""

    def __init__(self, backend: str, with_group: bool) -> None:
        self.spoiled = False
        self._backend = backend
        self._ranks = Ranks(SIZE, _VARIABLES, _MACHINES, FEATURE_SECONDS, grace_seconds=GRACE_SECONDS)
        self.play(_begin_with_group if with_group else _begin)

    def play(self, function: Callable[[Rank], None]) -> Outcome:
        """The worst of the ranks' outcomes."""
        ranks = self._ranks.start(_play, self._backend, self._ranks.store.port, function)
        answers = self._ranks.outcomes(ranks)
        self.spoiled = self.spoiled or any(outcome.word != "ok" for outcome in answers)
        order = ["died", "wrong", "error", "hang", "ok"]  # a death is an error to the others
        rank, worst = min(enumerate(answers), key=lambda numbered: order.index(numbered[1].word))
        return Outcome(worst.word, worst.text and f"rank {rank}: {worst.text}")

    def end(self) -> list[int | None]:
        """The ranks' exit codes. Those of a spoiled world are killed."""
        if not self.spoiled:
            self.play(_end)
        if self.spoiled:
            self._ranks.kill()
        shutil.rmtree(Rank(0, "", self._ranks.store.port).folder(""), ignore_errors=True)
        return self._ranks.close()


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
            spoiled, codes = world.spoiled, world.end()
            if not spoiled and any(codes):
                self.faults.append(f"{area} on {backend}: the ranks ended with {codes}")


def _play(rank: int, backend: str, port: int, function: Callable[[Rank], None]) -> None:
    torch.manual_seed(0)
    function(Rank(rank, backend, port))


def _begin(_rank: Rank) -> None:
    warnings.simplefilter("ignore")  # half of the calls are deprecated somewhere


def _begin_with_group(rank: Rank) -> None:
    _begin(rank)
    rank.init("world")


def _end(_rank: Rank) -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


assert GROUP_TIMEOUT.total_seconds() < FEATURE_SECONDS
