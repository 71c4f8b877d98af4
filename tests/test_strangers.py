"""Strangers at every port that a rank opens, from before the group is made until it has ended, change nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from failures.holdings import Holdings, listening_ports
from failures.judge import faults
from failures.play import Case, Play
from failures.stage import OUTSIDER, Stage
from failures.strangers import Target
from lab_programs import needs_namespaces

pytestmark = needs_namespaces

MIB = 1 << 20
ENOUGH = 50  # of every kind and at every port; twenty times as many connections are only opened and closed
MOST_GROWTH = 32 * MIB
LOW_PORT, HIGH_PORT = 29900, 29901


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


def address(machine: int) -> str:
    return f"10.77.0.{machine + 1}"


def doors(machine: int) -> list[Target]:
    return [(address(machine), port) for port in (LOW_PORT, HIGH_PORT)]


def local_doors(machine: int) -> list[Target]:
    return [f"fairring/{address(machine)}/{port}" for port in (LOW_PORT, HIGH_PORT)]


def test_strangers_change_nothing_from_before_the_group_until_after_it(stage: Stage) -> None:
    case = Case(
        "strangers",
        "strangers at every port",
        "serves",
        dict.fromkeys(range(4), ()),
        env={"FAIRRING_PORTS": f"{LOW_PORT}-{HIGH_PORT}"},
    )
    attack = ("failures.strangers", "attack")
    # From a machine that is none of the group's, from a peer's machine, and from the rank's own machine.
    attackers = [
        stage.fork(OUTSIDER, attack, (doors(0) + doors(1), ENOUGH), {}),
        stage.fork(2, attack, (doors(0), ENOUGH), {}),
        stage.fork(1, attack, (local_doors(0), ENOUGH), {}),
    ]
    play = Play(stage, case)
    try:
        play.go()
        play.hear("serving")
        for rank in play.ranks:
            store = {stage.port} if rank == 0 else set()
            opened = listening_ports(play.pids[rank]) - store
            assert len(opened & {LOW_PORT, HIGH_PORT}) == 1, f"rank {rank} listens on {opened}"
            assert len(opened) <= 2, f"rank {rank} listens on {opened}"  # and Gloo's
        for attacker in attackers:
            stage.await_(lambda pid=attacker: stage.heard[pid], 120, "the strangers")
        play.tell("enough")
        for rank in play.ranks:
            play.await_end(rank)
        for attacker in attackers:
            stage.tell(attacker, "end")
        stage.await_(lambda: all(pid in stage.codes for pid in attackers), 60, "the strangers' end")
        outcomes = play.run()
    finally:
        play.end()
    assert not faults(case, outcomes), "\n".join(faults(case, outcomes))
    for rank in play.ranks:
        assert outcomes[rank].log.count("was refused") == 1, outcomes[rank].log
        before, after = play.words(rank, "serving")[1], play.words(rank, "served")[1]
        assert isinstance(before, Holdings)
        assert isinstance(after, Holdings)
        assert after.memory - before.memory < MOST_GROWTH, f"rank {rank}: {before.memory} to {after.memory} bytes"
        assert after.threads == before.threads
