"""The loop of docs/failures.md that programs copy, run as it is shown, on ranks of which one dies.

What the page leaves to the reader (a model, a step) is given to the block by the names that it uses.
"""

from __future__ import annotations

import copy
import os
import signal
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from test_docs import DOCS, section
from test_docs_examples import BLOCK
from versions import needs_reconfigure

from fairring import members

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


def _keep(_rank: int, reconfigures: bool) -> Model:
    """The loop that keeps a copy of the last two steps."""
    model = Model()

    def reconfigure_or_shrink() -> None:
        if reconfigures:
            members.reconfigure(2, handles[:VICTIM]).wait()
        else:
            dist.shrink_group([VICTIM])

    def share_the_state_of_one_that_has_some(kept: list[tuple[Any, Model]]) -> None:
        if kept:
            model.take(kept[-1][1])
        model.share(bool(kept))

    handles: list[str] = []
    if reconfigures:
        handles = _handles()
        members.reconfigure(1, handles).wait()
    names = {"reconfigure_or_shrink": reconfigure_or_shrink, "copy_of": copy.copy, "train_one_step": Model.step}
    names["share_the_state_of_one_that_has_some"] = share_the_state_of_one_that_has_some
    _play("Which steps count", {"dist": dist, "model": model, "training": Training(model), **names})
    return model


def _handles() -> list[str]:
    """Of all ranks, by way of the store, which a scheduler's ranks would not need."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"handle {dist.get_rank()}", members.handle())
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
