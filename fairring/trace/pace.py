"""How fast each rank's core works, told by work that is the same on all ranks of a call.

A rank may own more of a call than others, even all of it: then its sums take longer, and its core is as fast as theirs.
But each rank copies the whole of its own input into its machine's memory and the whole result back.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from fairring.trace.records import MACHINE_LEVEL, RankTrace, Step

_INPUT = "RS"  # a reduce-scatter: until the input is copied, all ranks do the same
_WHOLE = ("AG", "LD", "ST")  # the whole step is copies of the same size
Work = tuple[str, str]  # the title of calls and the verb of one of their steps


def paces(ranks: Sequence[RankTrace], window: tuple[float, float]) -> dict[int, float]:
    """How many times as long as the others each rank takes for the same work.

    window: when steps were over that count. Ranks have none if no other did the same, or in no time that can be told.
    """
    taken = {one.rank: _taken(one, window) for one in ranks}
    found = {rank: _against(own, [other for who, other in taken.items() if who != rank]) for rank, own in taken.items()}
    return {rank: pace for rank, pace in found.items() if pace is not None}


def _taken(one: RankTrace, window: tuple[float, float]) -> dict[Work, tuple[int, float]]:
    """The number of steps of each work, and what the fastest tenth of them took: messages and other slices hold up the
    rest, on any core."""
    taken: dict[Work, list[float]] = defaultdict(list)
    for step in one.steps:
        call = one.calls.get(step.call)
        seconds = _alike(step)
        if call and seconds is not None and step.ready is not None and window[0] <= step.ready <= window[1]:
            taken[call.title, step.verb].append(seconds)
    return {work: (len(times), sorted(times)[len(times) // 10]) for work, times in taken.items()}


def _alike(step: Step) -> float | None:
    """Seconds of a step for what every rank does. None: its root, what it owns or when it hears from others decides."""
    if step.level != MACHINE_LEVEL or step.ready is None:
        return None
    if step.verb.startswith(_INPUT):
        return max(0.0, step.offered - step.began)
    if step.verb.startswith(_WHOLE) and not step.waited:
        return max(0.0, step.ready - step.began)
    return None


def _against(own: Mapping[Work, tuple[int, float]], others: Sequence[Mapping[Work, tuple[int, float]]]) -> float | None:
    mine = usual = 0.0
    for work, (count, seconds) in own.items():
        theirs = [other[work][1] for other in others if work in other]
        each = statistics.median(theirs) if theirs else 0.0
        if each > 0:
            mine += count * seconds
            usual += count * each
    return mine / usual if usual > 0 else None
