"""Ranks stream calls, one of them or a cable holds all up, and the others must name it, though most of them wait for
ranks that wait themselves. Random ones are played in virtual time: tests/simulation.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from failures.judge import named_in
from failures.play import Case, Outcome, Play

TIMEOUT_SECONDS = 4.0


@dataclass(frozen=True)
class Chain:
    """who: the rank that is stopped or computes, or the machine whose cable is cut, that many seconds after the
    beginning.
    """

    layout: str
    calls: str
    plant: str
    who: int
    after: float

    @property
    def title(self) -> str:
        of = "machine" if self.plant == "cut" else "rank"
        return f"{self.layout}: {self.plant}, {of} {self.who}, in {self.calls} after {self.after:.2f} s"


def case_of(chain: Chain) -> Case:
    return Case(
        chain.title,
        chain.title,
        chain.calls,
        {},
        event_of(chain),
        layout=chain.layout,
        timeout=TIMEOUT_SECONDS,
        module="failures.streams",
    )


def event_of(chain: Chain) -> Callable[[Play], None]:
    def event(play: Play) -> None:
        play.go()
        play.wait_until(chain.after)
        if chain.plant == "cut":
            play.set_link(chain.who, False)
        elif chain.plant == "stop":
            play.signal(chain.who, signal.SIGSTOP)
        else:
            play.mark()
            play.tell("compute", [chain.who])
        try:
            for rank in asked_of(chain):
                play.await_end(rank)
        finally:
            if chain.plant == "cut":
                play.stage.lab.set_link(chain.who, True)
        play.end()

    return event


def machine_of(chain: Chain, rank: int) -> int:
    return rank // int(chain.layout.split("x")[1])


def asked_of(chain: Chain) -> list[int]:
    """The ranks that have to name the culprit."""
    machines, ranks = (int(count) for count in chain.layout.split("x"))
    return [rank for rank in range(machines * ranks) if chain.plant == "cut" or rank != chain.who]


def culprits_of(chain: Chain, rank: int) -> set[int]:
    """The culprit as this rank sees it. Of a cut machine's ranks any: each is out of reach, and so are the others to
    them.
    """
    if chain.plant != "cut":
        return {chain.who}
    is_cut = machine_of(chain, rank) == chain.who
    return {other for other in asked_of(chain) if (machine_of(chain, other) == chain.who) != is_cut}


def faults(chain: Chain, outcomes: dict[int, Outcome]) -> list[str]:
    """What is wrong with what the ranks raised; empty where each has named the culprit and nobody else first."""
    wrong = []
    for rank in asked_of(chain):
        named = named_in(outcomes[rank].text)
        if not named or not named <= culprits_of(chain, rank):
            wrong.append(f"{chain.title}: rank {rank} names {sorted(named)}: {outcomes[rank]}")
        elif outcomes[rank].code != 0:
            wrong.append(f"{chain.title}: rank {rank} ended with code {outcomes[rank].code}")
    return wrong
