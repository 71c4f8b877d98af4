"""Making and destroying groups again and again leaves a process as it was: threads, descriptors, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from failures.churn import GROUPS, ROUNDS
from failures.holdings import Holdings
from failures.judge import faults
from failures.play import Case, Play
from failures.stage import Stage
from lab_programs import needs_namespaces

pytestmark = needs_namespaces

MIB = 1 << 20
MOST_GROWTH = 8 * MIB


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


def let_rounds_begin_together(play: Play) -> None:
    for number in range(ROUNDS):
        play.hear(f"left {number}")
        play.tell("next")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "title", "event"),
    [
        ("many_groups", f"{GROUPS} groups in one process, twice", None),
        ("many_inits", f"{ROUNDS} times destroy and init", let_rounds_begin_together),
    ],
)
def test_what_a_process_holds_does_not_grow(
    stage: Stage, body: str, title: str, event: Callable[[Play], None] | None
) -> None:
    case = Case(body, title, body, {}, event, layout="2x2", module="failures.churn")
    play = Play(stage, case)
    outcomes = play.run()
    assert not faults(case, outcomes), "\n".join(faults(case, outcomes))
    for rank in play.ranks:
        warm, empty = play.words(rank, "warm")[1], play.words(rank, "empty")[1]
        assert isinstance(warm, Holdings)
        assert isinstance(empty, Holdings)
        assert empty.beyond(warm) == {}, f"rank {rank}"
        assert empty.memory - warm.memory < MOST_GROWTH, f"rank {rank}: {warm.memory} to {empty.memory} bytes"
