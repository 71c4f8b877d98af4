"""Troubles to plant in a lab, and whom a trace is to name for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MACHINES = (2, 2, 2)


@dataclass(frozen=True)
class Planted:
    """kinds: any of these will do; none: nobody is to be named. run: of tests/programs/straggling.py."""

    title: str
    kinds: tuple[str, ...] = ()
    who: str = ""
    run: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cluster:
    """A lab, with what is played in it one after the other."""

    own_rates: str
    runs: list[Planted]


def clusters(rounds: int) -> Iterator[Cluster]:
    """rounds: how often each trouble is planted on each rank or machine."""
    world = sum(MACHINES)
    sound = [Planted("none")]
    slow = [Planted("slow backward", ("late",), f"rank {rank}", {"slow": [rank]}) for rank in range(world)]
    crowded = [Planted("busy core", ("processor",), f"rank {rank}", {"crowded": [rank]}) for rank in range(world)]
    machine = [
        Planted("slow machine", ("late",), f"machine {number}", {"slow": [2 * number, 2 * number + 1]})
        for number in range(len(MACHINES))
    ]
    yield Cluster("", rounds * [*sound, *slow, *crowded, *machine])
    for number in range(len(MACHINES)):
        named = Planted("slow link", ("link",), f"machine {number}")
        yield Cluster(f"{number}=100mbit", rounds * 2 * [named])
