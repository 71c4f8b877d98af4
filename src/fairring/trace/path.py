"""The critical path of a call: walked back from its end, over ranks and levels, to the rank with which the call began.

Each piece of it has one cause. Were it shorter, the call would end earlier, until another path is the longest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from fairring.trace.records import MACHINE_LEVEL, Call, RankTrace, Send, StagingWait, Step

_MOST_PIECES = 10_000


class Cause(Enum):
    LATE = "late"  # the rank made the call after the others
    WIRE = "wire"  # a message from one rank to another
    MACHINE = "machine"  # the same, within a machine: until the other rank has seen it
    GRANT = "grant"  # a message waited until its receiver had the memory
    SUMS = "sums"  # a rank's own sums and copies
    LOOP = "loop"  # a rank was busy with something else


@dataclass(frozen=True)
class Piece:
    """rank: the one that causes it; for WIRE and MACHINE the sender, and `to` the receiver."""

    cause: Cause
    rank: int
    seconds: float
    to: int | None = None


class CallPaths:
    """The records of several ranks, on one clock, looked up by call."""

    def __init__(self, ranks: Sequence[RankTrace]) -> None:
        self._steps: dict[tuple[int, int], list[Step]] = defaultdict(list)
        self._step_at: dict[tuple[int, int, str], Step] = {}
        self._sends: dict[tuple[int, int, str, int], Send] = {}
        self._staging: dict[tuple[int, int], StagingWait] = {}
        for one in ranks:
            for step in one.steps:
                if step.ready is not None:
                    self._steps[one.rank, step.call].append(step)
                    self._step_at[one.rank, step.slice, step.verb] = step
            for send in one.sends:
                self._sends[one.rank, send.slice, send.verb, send.peer] = send
            for wait in one.staging:
                self._staging[one.rank, wait.slice] = wait

    def of(self, call: Mapping[int, Call]) -> list[Piece]:
        """call: by rank. Returns the pieces from the last of all submissions on, the latest first."""
        ends = {rank: one.ended for rank, one in call.items() if one.ended is not None}
        rank = max(ends, key=lambda one: ends[one])
        time = ends[rank]
        number = call[rank].number
        pieces: list[Piece] = []
        step = self._before(self._steps[rank, number], time)
        while step is not None and len(pieces) < _MOST_PIECES:
            assert step.ready is not None
            pieces.append(Piece(Cause.LOOP, rank, time - step.ready))
            rank, time = self._through(step, rank, pieces)
            earlier = [other for other in self._steps[rank, number] if other is not step]
            previous = self._before((other for other in earlier if other.slice == step.slice), time)
            wait = self._staging.get((rank, step.slice))
            if previous is None and wait is not None:  # an older slice had what this one needed
                time = min(time, wait.ended)
                previous = self._before((other for other in earlier if other.slice < step.slice), time)
            step = previous
        pieces.append(Piece(Cause.LOOP, rank, max(0.0, time - call[rank].submitted)))
        return [piece for piece in pieces if piece.seconds > 0]

    def _through(self, step: Step, rank: int, pieces: list[Piece]) -> tuple[int, float]:
        """Adds the pieces of one step; returns the rank and the time at which the path goes on."""
        assert step.ready is not None
        if not step.waited or step.peer is None:
            pieces.append(Piece(Cause.SUMS, rank, step.ready - step.began))
            return rank, step.began
        pieces.append(Piece(Cause.SUMS, rank, step.ready - step.heard))
        peer = step.peer
        send = self._sends.get((peer, step.slice, step.verb, rank))
        there = self._step_at.get((peer, step.slice, step.verb))
        cause = Cause.MACHINE if step.level == MACHINE_LEVEL else Cause.WIRE
        if send is not None:
            pieces.append(Piece(cause, peer, step.heard - send.went, rank))
            pieces.append(Piece(Cause.GRANT, rank, send.went - send.wanted))
            if there is None:
                return peer, send.wanted
        elif there is None:
            pieces.append(Piece(cause, peer, step.heard - step.offered, rank))
            return rank, step.began
        else:
            pieces.append(Piece(cause, peer, step.heard - there.offered, rank))
        pieces.append(Piece(Cause.SUMS, peer, there.offered - there.began))
        return peer, there.began

    @staticmethod
    def _before(steps: Iterable[Step], time: float) -> Step | None:
        """The last one that was ready by then."""
        there = [step for step in steps if step.ready is not None and step.ready <= time + 1e-9]
        return max(there, key=lambda step: step.ready or 0.0, default=None)
