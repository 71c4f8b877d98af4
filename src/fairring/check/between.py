"""Findings that only a look at several ranks gives: pure functions of their facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairring.check.findings import PASS, WARN, Finding


def of(heres: Sequence[Mapping[str, Any]], machines: Sequence[str], rdma_refused: str) -> list[Finding]:
    """heres: report.here()'s of each rank; machines: of each rank. rdma_refused: why TCP is taken; empty: it is not."""
    found = []
    if len(set(machines)) > 1:
        if rdma_refused and any(here["module"]["rdma"] for here in heres):
            text = f"TCP between machines, not RDMA: {rdma_refused}"
            found.append(Finding(WARN, text, "see docs/rdma.md, or leave it"))
        found += [*_differing(heres, "mtu"), *_differing(heres, "speed")]
    torches = {here["torch"]["version"] for here in heres}
    if len(torches) > 1:
        text = f"torch differs between ranks: {', '.join(sorted(torches))}"
        found.append(Finding(WARN, text, "install the same one everywhere"))
    return found


def together(of_ranks: Sequence[Sequence[Finding]]) -> list[Finding]:
    """The findings on each rank's own machine that are no PASS, each once, with the ranks that have it."""
    kinds = dict.fromkeys(one for findings in of_ranks for one in findings if one.level != PASS)
    return [
        Finding(
            kind.level,
            f"{_named([rank for rank, own in enumerate(of_ranks) if kind in own])}: {kind.what}",
            kind.advice,
        )
        for kind in kinds
    ]


def _differing(heres: Sequence[Mapping[str, Any]], key: str) -> Iterator[Finding]:
    """The values of all interfaces that ranks are reached by, where they are known."""
    of_ranks = [
        [one[key] for one in here["network"]["reached"]["interfaces"] if one[key] is not None] for here in heres
    ]
    values = [value for of_rank in of_ranks for value in of_rank]
    if len(set(values)) < 2:
        return
    least, most = min(values), max(values)
    ranks = _named([rank for rank, of_rank in enumerate(of_ranks) if least in of_rank])
    if key == "mtu":
        text = f"MTUs differ, from {least} ({ranks}) to {most}: large packets may be lost"
        yield Finding(WARN, text, "set the same on all")
    else:
        text = f"{ranks} have an interface of {least} Mbit/s, others of up to {most}: the slowest decides"
        yield Finding(WARN, text, "choose another by TP_SOCKET_IFNAME, or mend the slow one")


def _named(ranks: Sequence[int]) -> str:
    """ "rank 0" or "ranks 0, 2"."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
