"""The warnings, each with advice: a pure function of the facts that were found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def advice(systems: Sequence[dict[str, Any]], machines: Sequence[str], rdma_refused: str) -> list[str]:
    """systems: describe()'s result on each rank; machines: of each rank. One sentence or two for each warning."""
    several = len(set(machines)) > 1
    found = []
    if several and rdma_refused and any(system["rdma"] for system in systems):
        found.append(f"TCP between machines, not RDMA: {rdma_refused}.")
    if several:
        found += _mtu(systems)
        found += _speed(systems)
        found += _ipv6(systems)
    found += _passed_over(systems)
    found += _versions(systems)
    return found


def _mtu(systems: Sequence[dict[str, Any]]) -> list[str]:
    sizes = _all(systems, "mtu")
    if len(set(sizes)) < 2:
        return []
    ranks = _ranks(systems, lambda system: min(sizes) in _all([system], "mtu"))
    text = f"MTUs differ, from {min(sizes)} ({ranks}) to {max(sizes)}: large packets may be lost; "
    return [text + "set the same on all."]


def _speed(systems: Sequence[dict[str, Any]]) -> list[str]:
    speeds = _all(systems, "speed")
    if len(set(speeds)) < 2:
        return []
    ranks = _ranks(systems, lambda system: min(speeds) in _all([system], "speed"))
    text = f"{ranks} have an interface of {min(speeds)} Mbit/s, others of up to {max(speeds)}: the slowest decides; "
    return [text + "TP_SOCKET_IFNAME chooses another."]


def _all(systems: Sequence[dict[str, Any]], key: str) -> list[int]:
    """The values of all interfaces for which they are known."""
    return [one[key] for system in systems for one in system["interfaces"] if one[key] is not None]


def _ipv6(systems: Sequence[dict[str, Any]]) -> list[str]:
    def lacks(system: dict[str, Any]) -> bool:
        return any("IPv6" in device["obstacle"] for device in system["rdma"])

    ranks = _ranks(systems, lacks)
    return [f"{ranks}: RoCE needs IPv6 on its interface, and it is off there."] if ranks else []


def _passed_over(systems: Sequence[dict[str, Any]]) -> list[str]:
    sentences = dict.fromkeys(sentence for system in systems for sentence in system["passed_over"])

    def ranks_of(sentence: str) -> str:
        return _ranks(systems, lambda system: sentence in system["passed_over"])

    return [f"{ranks_of(sentence)}: {sentence}." for sentence in sentences]


def _versions(systems: Sequence[dict[str, Any]]) -> list[str]:
    torches = {system["versions"]["torch"] for system in systems}
    return [f"torch differs between ranks: {', '.join(sorted(torches))}."] if len(torches) > 1 else []


def _ranks(systems: Sequence[dict[str, Any]], holds: Callable[[dict[str, Any]], bool]) -> str:
    """ "rank 0" or "ranks 0, 2"; empty if there is none."""
    ranks = [str(rank) for rank, system in enumerate(systems) if holds(system)]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}" if ranks else ""
