"""The two loops of docs/failures.md that programs copy, run as they are shown, on ranks of which one dies.

What the page leaves to the reader (a scheduler, a model, a step) is given to the blocks by the names that they use.
"""

from __future__ import annotations

import copy
import os
import signal
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import TIMEOUT_SECONDS, Ranks
from test_docs import DOCS, section
from test_docs_examples import BLOCK
from versions import needs_reconfigure

c10d: Any = dist.distributed_c10d
WORLD, STEPS, DEADLY_STEP = 3, 12, 6
VICTIM = WORLD - 1
SURVIVORS = list(range(VICTIM))


def _play(heading: str, names: dict[str, Any]) -> None:
    """Runs the first `python` block under the heading, with these names beside its own."""
    text = next(
        text for language, _, text in BLOCK.findall(section(DOCS / "failures.md", heading)) if language == "python"
    )
    exec(compile(text, f"docs/failures.md, {heading}", "exec"), names)


@dataclass
class Model:
    """Its only parameter grows by the number of ranks in each step, so it tells which steps have counted."""

    parameter: float = 0.0
    steps: int = 0

    def take(self, other: Model) -> None:
        self.parameter, self.steps = other.parameter, other.steps

    def step(self) -> None:
        if self.steps + 1 == DEADLY_STEP and dist.get_rank() == VICTIM:
            os.kill(os.getpid(), signal.SIGKILL)
        total = torch.ones(1)
        dist.all_reduce(total)
        self.take(Model(self.parameter + total.item(), self.steps + 1))

    def share(self, has_one: bool) -> None:
        """All take the model of the first rank that has one."""
        have = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(have, torch.tensor([float(has_one)]))
        state = torch.tensor([self.parameter, float(self.steps)])
        dist.broadcast(state, have.index(torch.ones(1)))
        self.take(Model(state[0].item(), int(state[1])))


COUNTED = Model(WORLD * (DEADLY_STEP - 1) + len(SURVIVORS) * (STEPS - DEADLY_STEP + 1), STEPS)


class Training:
    """`while training`: as long as the model has steps to do."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __bool__(self) -> bool:
        return self._model.steps < STEPS


def _obey(_rank: int, scheduler: Connection) -> Model:
    """The loop of a rank whose members a scheduler gives."""
    model = Model()

    def train_from(state: Model) -> None:
        model.take(state)
        while Training(model):
            model.step()

    def state_of_the_furthest_member() -> Model:
        steps = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(steps, torch.tensor([float(model.steps)]))
        furthest = copy.copy(model)
        furthest.share(model.steps == max(int(each) for each in steps))
        return furthest

    names = {"train_from": train_from, "state_of_the_furthest_member": state_of_the_furthest_member}
    _play("Going on", {"dist": dist, "scheduler": scheduler, **names})
    return model


def _hear(rank: Connection) -> str:
    assert rank.poll(TIMEOUT_SECONDS), "a rank says nothing"
    said: str = rank.recv()
    return said


@needs_reconfigure
def test_ranks_that_a_scheduler_gives_new_members_go_on() -> None:
    ranks = Ranks(WORLD)
    here, there = zip(*(Pipe() for _ in range(WORLD)), strict=True)
    started = [ranks.start(_obey, pipe, on=[rank]) for rank, pipe in enumerate(there)]
    handles = [_hear(pipe) for pipe in here]
    for pipe in here:
        pipe.send((1, handles))
    errors = [_hear(here[rank]) for rank in SURVIVORS]
    assert all(f"rank {VICTIM} " in error for error in errors), errors
    for rank in SURVIVORS:
        here[rank].send((2, handles[:VICTIM]))
        here[rank].send(None)
    assert [ranks.finish(started[rank])[0] for rank in SURVIVORS] == [COUNTED] * len(SURVIVORS)
    ranks.kill()


def _keep(_rank: int, reconfigures: bool) -> Model:
    """The loop that keeps a copy of the last two steps."""
    model = Model()

    def reconfigure_or_shrink() -> None:
        if reconfigures:
            c10d._reconfigure(2, handles[:VICTIM]).wait()
        else:
            dist.shrink_group([VICTIM])

    def share_the_state_of_one_that_has_some(kept: list[tuple[Any, Model]]) -> None:
        if kept:
            model.take(kept[-1][1])
        model.share(bool(kept))

    handles: list[str] = []
    if reconfigures:
        handles = _handles()
        c10d._reconfigure(1, handles).wait()
    names = {"reconfigure_or_shrink": reconfigure_or_shrink, "copy_of": copy.copy, "train_one_step": Model.step}
    names["share_the_state_of_one_that_has_some"] = share_the_state_of_one_that_has_some
    _play("Which steps count", {"dist": dist, "model": model, "training": Training(model), **names})
    return model


def _handles() -> list[str]:
    """Of all ranks, by way of the store, which a scheduler's ranks would not need."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"handle {dist.get_rank()}", c10d._get_reconfigure_handle())
    return [store.get(f"handle {rank}").decode() for rank in range(WORLD)]


def _init(rank: int, port: int, reconfigures: bool) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    more: dict[str, Any] = {"enable_reconfigure": True} if reconfigures else {}
    dist.init_process_group("fairring", store=store, rank=rank, world_size=WORLD, **more)


@pytest.mark.parametrize("reconfigures", [False, pytest.param(True, marks=needs_reconfigure)])
def test_only_steps_that_were_complete_everywhere_are_kept(reconfigures: bool) -> None:
    ranks = Ranks(WORLD)
    ranks.run(_init, ranks.store.port, reconfigures)
    started = ranks.start(_keep, reconfigures)
    assert ranks.finish(started[:VICTIM]) == [COUNTED] * len(SURVIVORS)
    ranks.kill()
