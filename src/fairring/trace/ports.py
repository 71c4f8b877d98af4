"""Machines' ports, through which the large messages between machines go: one way out and one in for each machine.

A trace shows messages and not ports, so what a port carries in a second lies between two bounds. At least, it is what
it carried while any message was under way, since messages also wait for the other end. At most, it is the sum of what
each of its links carries, since those may share it by turns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fairring.trace.records import RankTrace, Receive


class Port(NamedTuple):
    machine: str
    way: str  # out, in


class Passage(NamedTuple):
    """A message between the machines of two ranks. Times: seconds."""

    source: str
    target: str
    call: int
    bytes: int
    went: float
    arrived: float

    @property
    def ports(self) -> tuple[Port, Port]:
        return Port(self.source, "out"), Port(self.target, "in")


class Arrival(NamedTuple):
    """A large message that the rank received. went: when its sender sent it; None: that is not recorded."""

    rank: int
    message: Receive
    went: float | None


def arrivals(ranks: Sequence[RankTrace]) -> list[Arrival]:
    """All of them, by rank."""
    went = {(one.rank, send.peer, send.slice, send.verb): send.went for one in ranks for send in one.sends}
    return [
        Arrival(one.rank, message, went.get((message.peer, one.rank, message.slice, message.verb)))
        for one in ranks
        for message in one.receives
    ]


def passages(every: Iterable[Arrival], machines: Sequence[str], window: tuple[float, float]) -> list[Passage]:
    """Those between machines that came in the window. machines: the name for each rank of the group."""
    return [
        Passage(machines[message.peer], machines[rank], message.call, message.bytes, went, message.arrived)
        for rank, message, went in every
        if machines[message.peer] != machines[rank] and window[0] <= message.arrived <= window[1] and went is not None
    ]


def least_rates(messages: Iterable[Passage]) -> dict[Port, float]:
    """Bytes per second that each port carries at least: while any of these messages was under way."""
    of_port: dict[Port, list[Passage]] = defaultdict(list)
    for message in messages:
        for port in message.ports:
            of_port[port].append(message)
    return {
        port: sum(one.bytes for one in every) / max(covered((one.went, one.arrived) for one in every), 1e-6)
        for port, every in of_port.items()
    }


def busiest(messages: Iterable[Passage], most: Mapping[Port, float], calls: Sequence[int]) -> list[float]:
    """For each call, the seconds that its messages take the busiest port at least. most: bytes per second of ports."""
    carried: dict[int, dict[Port, int]] = defaultdict(lambda: defaultdict(int))
    for message in messages:
        for port in message.ports:
            carried[message.call][port] += message.bytes
    return [
        max((bytes_ / most[port] for port, bytes_ in carried[call].items() if port in most), default=0.0)
        for call in calls
    ]


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that lie in any of these spans from their beginnings to their ends."""
    seconds, over = 0.0, float("-inf")
    for begin, end in sorted(spans):
        seconds += max(0.0, end - max(begin, over))
        over = max(over, end)
    return seconds
