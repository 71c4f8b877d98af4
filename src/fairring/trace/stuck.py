"""The reason why a group stands still, in words, the culprit first: from the traces of all ranks, of some, or of one.

A rank knows from its neighbours' heartbeats how many calls these have made, which of their own neighbours is furthest
behind, and which is silent. So any rank's trace names the culprit even if that is not its neighbour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

from fairring.trace.records import Call, MessageWait, RankTrace, Sighting

_BEATS_SECONDS = 2.5  # at least two heartbeats fall due in that time


def stuck(ranks: Sequence[RankTrace]) -> Iterator[str]:
    """The lines to print. None if no rank waits for a call, a message or another rank."""
    yield from _absent(ranks)
    yield from _silent(ranks)
    if any(_oldest(one) for one in ranks):
        yield from _calls(ranks)
    yield from _messages(ranks)


def stands_still(ranks: Sequence[RankTrace]) -> bool:
    """Whether a rank waits for one that has not made the group, or has waited for longer than two heartbeats."""
    return any(one.absent or any(one.now - since > _BEATS_SECONDS for since in _under_way(one)) for one in ranks)


def _under_way(one: RankTrace) -> Iterator[float]:
    """Since when each call and message has been under way."""
    yield from (call.submitted for call in one.calls.values() if call.ended is None)
    yield from (wait.since for wait in one.messages)


def _absent(ranks: Sequence[RankTrace]) -> Iterator[str]:
    absent = sorted(set(chain.from_iterable(one.absent for one in ranks)) - {one.rank for one in ranks if one.calls})
    waiting = [one.rank for one in ranks if one.absent]
    if absent:
        yield (
            f"{_listed(absent)} has not made the group, for which {_listed(waiting)} waits: did it start, does it "
            "live, and can it reach the store?"
        )


def _silent(ranks: Sequence[RankTrace]) -> Iterator[str]:
    """Machines before ranks: a machine is silent if all its ranks are silent for those of other machines."""
    one = ranks[0]
    longest: dict[int, Sighting] = {}
    for seen in chain.from_iterable(other.seen for other in ranks):
        if seen.silent > max(_BEATS_SECONDS, longest[seen.rank].silent if seen.rank in longest else 0.0):
            longest[seen.rank] = seen
    silent = defaultdict(list)
    for rank, seen in longest.items():
        silent[one.machines[rank]].append(seen)
    for machine, seens in silent.items():
        mates = [rank for rank, name in enumerate(one.machines) if name == machine]
        seconds = max(seen.silent for seen in seens)
        by = _listed(sorted({seen.by for seen in seens}))
        if len(seens) == len(mates) > 1 and all(one.machines[seen.by] != machine for seen in seens):
            yield (
                f"{one.title(machine)} ({_listed(mates)}) has given {by} no sign of life for {seconds:.3g} s: it is "
                "down, or the network to it is cut"
            )
            continue
        for seen in seens:
            yield (
                f"{one.who(seen.rank)} has given {_listed([seen.by])} no sign of life for {seen.silent:.3g} s: its "
                "process is stopped, its machine is down, or the network to it is cut"
            )


def _calls(ranks: Sequence[RankTrace]) -> Iterator[str]:
    """The oldest call that is under way: the ranks that have not made it, and those that the others wait for."""
    oldest = min((call for one in ranks if (call := _oldest(one))), key=lambda call: call.number)
    in_it = [(one, call) for one in ranks if (call := one.calls.get(oldest.number)) and call.ended is None]
    seconds = max(one.now - call.submitted for one, call in in_it)
    last = _last_made(ranks, seconds)
    missing = sorted(rank for rank, (number, _) in last.items() if number < oldest.number)
    programs = {one.rank: one.program for one in ranks}
    for rank in missing:
        number, title = last[rank]
        its_last = f"its last was call {number}{', ' + title if title else ''}" if number else "it has made no call yet"
        where = f"; its program is at {programs[rank]}" if programs.get(rank) else ""
        yield f"Not in call {oldest.number}, {oldest.title}: {ranks[0].who(rank)}; {its_last}{where}."
    by_whom: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for one, _ in in_it:
        by_whom[_waits(one)].append(one.rank)
    for whom, waiting in by_whom.items():
        has = "has" if len(waiting) == 1 else "have"
        for_whom = f", waiting for {_listed(whom)}" if whom else ""
        yield f"{_listed(waiting)} {has} been in call {oldest.number}, {oldest.title}, for {seconds:.3g} s{for_whom}."
    unseen = sorted(set(range(len(ranks[0].machines))) - {one.rank for one in ranks})
    if unseen:
        yield f"No trace of {_listed(unseen)}."


def _last_made(ranks: Sequence[RankTrace], seconds: float) -> dict[int, tuple[int, str]]:
    """The number and title of the last call of each rank for which they are known.

    Heartbeats are old news, so the others' reports of a rank count only if calls have been under way for some time.
    """
    last: dict[int, tuple[int, str]] = {}
    for seen in chain.from_iterable(one.seen for one in ranks if seconds > _BEATS_SECONDS):
        if seen.calls is not None:
            last[seen.rank] = max(last.get(seen.rank, (0, "")), (seen.calls, seen.last))
    for one in ranks:
        number = max(one.calls, default=0)
        if number >= last.get(one.rank, (0, ""))[0]:
            last[one.rank] = (number, one.calls[number].title if number else "")
    return last


def _messages(ranks: Sequence[RankTrace]) -> Iterator[str]:
    """One line for each pair of ranks and direction, for the message that has waited longest."""
    longest: dict[tuple[int, int | None, bool], tuple[float, MessageWait]] = {}
    for one in ranks:
        for wait in one.messages:
            which = (one.rank, wait.peer, wait.sends)
            longest[which] = max(longest.get(which, (0.0, wait)), (one.now - wait.since, wait), key=lambda two: two[0])
    programs = {one.rank: one.program for one in ranks}
    for (rank, peer, sends), (seconds, wait) in longest.items():
        what = "to receive the message that it sends" if sends else "for a message"
        whom = "any rank" if peer is None else ranks[0].who(peer)
        way = f"for {whom} {what}" if sends else f"{what} from {whom}"
        where = f"; its program is at {programs[peer]}" if peer is not None and programs.get(peer) else ""
        yield f"rank {rank} has waited {way} (tag {wait.tag}) for {seconds:.3g} s{where}."


def _oldest(one: RankTrace) -> Call | None:
    return min((call for call in one.calls.values() if call.ended is None), key=lambda call: call.number, default=None)


def _waits(one: RankTrace) -> tuple[int, ...]:
    steps = {step.peer for step in one.steps if step.ready is None and step.peer is not None}
    return tuple(sorted(steps | set(one.missing)))


def _listed(ranks: Sequence[int]) -> str:
    return f"rank {', '.join(map(str, ranks))}"
