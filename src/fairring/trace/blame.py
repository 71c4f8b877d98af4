"""The time that the calls of a job waited, by rank and link, in seconds.

The time from the first call's end to the last one's is divided by the oldest call that is not over. Until some rank
makes that call, no rank waits. Until all have made it, the call waits for the last rank. After that, its critical path
names the cause (path.py). A rank that is late for several calls at once is counted once.
"""

from __future__ import annotations

import heapq
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fairring.trace.clock import offsets
from fairring.trace.path import CallPaths, Cause, Piece
from fairring.trace.records import Call, RankTrace, TraceError

Who = TypeVar("Who")


@dataclass(frozen=True)
class Link:
    """A link from one rank to another, above the machine, measured over the large messages seen."""

    source: int
    target: int
    bytes_per_second: float  # the median


@dataclass(frozen=True)
class OwnSums:
    """Seconds of a rank's sums and copies, on the path or not.

    busy: in which it had any to do. least: if each took as long as the fastest of its kind.
    """

    busy: float
    least: float


@dataclass
class CallBlame:
    """As Blame, but for a single call. bytes: of its large messages, by (source, target)."""

    title: str
    bytes: Counter[tuple[int, int]] = field(default_factory=Counter)
    late: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    wire: dict[tuple[int, int], float] = field(default_factory=lambda: defaultdict(float))
    own: dict[int, float] = field(default_factory=lambda: defaultdict(float))  # sums, copies and its loop


@dataclass
class Blame:
    """Seconds by cause and by culprit; ranks as the group counts them.

    span: from the first call's end to the last of all ends. late: the calls waited for this rank only. late_machine:
    they waited for ranks of this machine only. late_calls: the number of those calls. links: by (source, target).
    by_call: one for each call but the first, at whose end the span begins.
    """

    ranks: list[RankTrace]
    calls: int
    period: int  # calls of a step, as their titles repeat
    span: float
    clock_error: float | None
    computing: float = 0.0  # no rank had made the next call, or several had not
    late: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    late_machine: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    late_calls: Counter[int] = field(default_factory=Counter)
    wire: dict[tuple[int, int], float] = field(default_factory=lambda: defaultdict(float))
    machine: dict[tuple[int, int], float] = field(default_factory=lambda: defaultdict(float))
    sums: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    grants: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    loop: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    staging: dict[int, float] = field(default_factory=dict)  # some slice of the rank waited for its staging
    own_sums: dict[int, OwnSums] = field(default_factory=dict)
    links: dict[tuple[int, int], Link] = field(default_factory=dict)
    by_call: list[CallBlame] = field(default_factory=list)

    @property
    def steps(self) -> float:
        return max(self.calls / self.period, 1e-9)

    def machine_of(self, rank: int) -> str:
        return self.ranks[0].machines[rank]

    def title(self, machine: str) -> str:
        return self.ranks[0].title(machine)

    def who(self, rank: int) -> str:
        return self.ranks[0].who(rank)


def dearest(seconds: Mapping[Who, float], count: int) -> list[tuple[Who, float]]:
    """The largest values, the largest first."""
    return heapq.nlargest(count, seconds.items(), key=lambda entry: entry[1])


def blame(ranks: Sequence[RankTrace], last: int | None = None) -> Blame:
    """ranks: of one group, each on its own clock. last: only that many calls. Raises TraceError."""
    moves = offsets(ranks)
    there = [one.shifted(moves[one.rank].seconds) for one in ranks]
    numbers = sorted(set.intersection(*(_ended(one) for one in there)))
    numbers = numbers[-(last + 1) :] if last else numbers
    if len(numbers) < 2:
        raise TraceError("the traces have not two calls that all of these ranks have ended; let the job run on")
    calls = [{one.rank: one.calls[number] for one in there} for number in numbers]
    span = max(map(_end, calls)) - _end(calls[0])
    if span <= 0:
        raise TraceError("all calls that all of these ranks have ended were over at once; let the job run on")
    errors = [move.error for move in moves.values()]
    period = _period([min(call.items())[1].title for call in calls[1:]])
    found = Blame(
        ranks=there,
        calls=len(calls) - 1,
        period=period,
        span=span,
        clock_error=max((error for error in errors if error is not None), default=0.0) if None not in errors else None,
    )
    paths = CallPaths(there)
    before = _end(calls[0])
    for call in calls[1:]:
        before = _add_call(found, call, before, paths)
    window = (_end(calls[0]), before)
    found.staging = {one.rank: _staging(one, window) for one in there}
    found.own_sums = {one.rank: _own_sums(one, window) for one in there}
    found.links = _links(there, window)
    moved = _moved(there)
    for number, of_call in zip(numbers[1:], found.by_call, strict=True):
        of_call.bytes = moved[number]
    return found


def _moved(ranks: Sequence[RankTrace]) -> dict[int, Counter[tuple[int, int]]]:
    """By call and by (source, target), the bytes of large messages."""
    moved: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    for one in ranks:
        for message in one.receives:
            moved[message.call][message.peer, one.rank] += message.bytes
    return moved


def _ended(one: RankTrace) -> set[int]:
    return {number for number, call in one.calls.items() if call.ended is not None and not call.failed}


def _end(call: dict[int, Call]) -> float:
    return max(one.ended or 0.0 for one in call.values())


def _add_call(found: Blame, call: dict[int, Call], before: float, paths: CallPaths) -> float:
    """before: when the last call was over. Returns when this one was over."""
    found.by_call.append(CallBlame(min(call.items())[1].title))
    submitted = {rank: one.submitted for rank, one in call.items()}
    start = max(before, min(submitted.values()))
    end = max(_end(call), start)
    found.computing += start - before
    latest = max(submitted, key=lambda rank: submitted[rank])
    _add_late(found, submitted, latest, start)
    arrived = max(start, submitted[latest])
    pieces = paths.of(call)
    left = end - arrived
    for piece in pieces:
        taken = min(piece.seconds, left)  # of the time after the last submission
        left -= taken
        if taken > 0:
            _add_piece(found, piece, taken)
    return end


def _add_late(found: Blame, submitted: dict[int, float], latest: int, start: float) -> None:
    others = [time for rank, time in submitted.items() if rank != latest]
    alone = submitted[latest] - max([start, *others])
    found.computing += max([start, *others]) - start
    if alone > 0:
        found.late[latest] += alone
        found.late_calls[latest] += 1
        found.by_call[-1].late[latest] += alone
    machine = found.machine_of(latest)
    elsewhere = [time for rank, time in submitted.items() if found.machine_of(rank) != machine]
    alone = submitted[latest] - max([start, *elsewhere])
    if elsewhere and alone > 0:
        found.late_machine[machine] += alone


def _add_piece(found: Blame, piece: Piece, seconds: float) -> None:
    of_call = found.by_call[-1]
    match piece.cause:
        case Cause.WIRE:
            found.wire[piece.rank, piece.to or 0] += seconds
            of_call.wire[piece.rank, piece.to or 0] += seconds
        case Cause.MACHINE:
            found.machine[piece.rank, piece.to or 0] += seconds
        case Cause.SUMS:
            found.sums[piece.rank] += seconds
            of_call.own[piece.rank] += seconds
        case Cause.GRANT:
            found.grants[piece.rank] += seconds
        case Cause.LOOP | Cause.LATE:
            found.loop[piece.rank] += seconds
            of_call.own[piece.rank] += seconds


def _staging(one: RankTrace, window: tuple[float, float]) -> float:
    """Only the next slice waits; those behind it are not cut yet."""
    return sum(max(0.0, min(wait.ended, window[1]) - max(wait.began, window[0])) for wait in one.staging)


def _own_sums(one: RankTrace, window: tuple[float, float]) -> OwnSums:
    spans: list[tuple[float, float]] = []
    taken: dict[str, list[float]] = defaultdict(list)
    for step in one.steps:
        if step.ready is not None and window[0] <= step.ready <= window[1]:
            there = max(step.heard if step.waited else 0.0, step.offered)
            spans += [(step.began, step.offered), (there, step.ready)]
            taken[step.verb].append(max(0.0, step.offered - step.began + step.ready - there))
    return OwnSums(busy=_covered(spans), least=sum(len(times) * min(times) for times in taken.values()))


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that lie in any of these spans from their beginnings to their ends."""
    seconds, over = 0.0, float("-inf")
    for begin, end in sorted(spans):
        seconds += max(0.0, end - max(begin, over))
        over = max(over, end)
    return seconds


def _links(ranks: Sequence[RankTrace], window: tuple[float, float]) -> dict[tuple[int, int], Link]:
    """Of large messages that came in the window and whose senders have recorded when they sent them."""
    sent = {(one.rank, send.peer, send.slice, send.verb): send.went for one in ranks for send in one.sends}
    rates: dict[tuple[int, int], list[float]] = defaultdict(list)
    before: dict[tuple[int, int], float] = defaultdict(float)  # when a link's last message came: others wait behind it
    received = [(one.rank, message) for one in ranks for message in one.receives]
    for rank, message in sorted(received, key=lambda pair: pair[1].arrived):
        link = message.peer, rank
        went = sent.get((message.peer, rank, message.slice, message.verb))
        if went is not None and window[0] <= message.arrived <= window[1]:
            took = max(message.arrived - max(went, before[link]), 1e-6)
            rates[link].append(message.bytes / took)
        before[link] = message.arrived
    return {(source, target): Link(source, target, statistics.median(seen)) for (source, target), seen in rates.items()}


def _period(titles: Sequence[str]) -> int:
    """The calls after which the titles repeat; 1 where they do not. A first step may have others, so the later half."""
    later = titles[len(titles) // 2 :]
    for period in range(1, len(later) // 2 + 1):
        if all(title == later[index - period] for index, title in enumerate(later) if index >= period):
            return period
    return 1
