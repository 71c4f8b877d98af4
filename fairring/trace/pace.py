"""How fast each rank's core works, told by work that is the same on all ranks of a call.

A rank may own more of a call than others, even all of it: then its sums take longer, and its core is as fast as theirs.
But each rank copies the whole of its own input into its machine's memory and the whole result back, and sums between
machines are compared by the bytes that were received for them.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from fairring.trace.records import MACHINE_LEVEL, RankTrace, Step

_INPUT = "RS"  # a reduce-scatter: until the input is copied, all ranks do the same
_SUMS = ("RS", "AR")  # between machines
_WHOLE = ("AG", "LD", "ST")  # the whole step is copies of the same size
Work = tuple[str, str]  # the title of calls and the verb of one of their steps


def paces(ranks: Sequence[RankTrace], window: tuple[float, float]) -> dict[int, float]:
    """How many times as long as the others each rank takes for the same work.

    window: when steps were over that count. Ranks have none if no other did the same, or in no time that can be told.
    """
    taken = {one.rank: _taken(one, window) for one in ranks}
    found = {rank: _against(own, [other for who, other in taken.items() if who != rank]) for rank, own in taken.items()}
    return {rank: pace for rank, pace in found.items() if pace is not None}


def _taken(one: RankTrace, window: tuple[float, float]) -> dict[Work, tuple[float, float]]:
    """The amount of each work, and the seconds for one of it in the fastest tenth of steps: messages and other slices
    hold up the rest, on any core."""
    received: dict[tuple[int, str], int] = defaultdict(int)
    for message in one.receives:
        received[message.slice, message.verb] += message.bytes
    taken: dict[Work, list[tuple[float, float]]] = defaultdict(list)
    for step in one.steps:
        call = one.calls.get(step.call)
        if call is None or step.ready is None or not window[0] <= step.ready <= window[1]:
            continue
        amount, seconds = _done(step, step.ready, received[step.slice, step.verb])
        if amount > 0:
            taken[call.title, step.verb].append((seconds / amount, amount))
    return {
        work: (sum(amount for _, amount in times), sorted(times)[len(times) // 10][0]) for work, times in taken.items()
    }


def _done(step: Step, ready: float, received: int) -> tuple[float, float]:
    """The amount of work in a step, and its seconds. None where its root, or when it hears from others, decides."""
    if step.level != MACHINE_LEVEL and step.verb.startswith(_SUMS):
        return received, max(0.0, ready - max(step.heard, step.offered))
    if step.level == MACHINE_LEVEL and step.verb.startswith(_INPUT):
        return 1, max(0.0, step.offered - step.began)
    if step.level == MACHINE_LEVEL and step.verb.startswith(_WHOLE) and not step.waited:
        return 1, max(0.0, ready - step.began)
    return 0, 0.0


def _against(
    own: Mapping[Work, tuple[float, float]], others: Sequence[Mapping[Work, tuple[float, float]]]
) -> float | None:
    mine = usual = 0.0
    for work, (amount, seconds) in own.items():
        theirs = [other[work][1] for other in others if work in other]
        each = statistics.median(theirs) if theirs else 0.0
        if each > 0:
            mine += amount * seconds
            usual += amount * each
    return mine / usual if usual > 0 else None
