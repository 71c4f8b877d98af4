"""The time that a job's calls would have taken with something changed: they are replayed one after the other.

A rank makes a call when it comes to it. Counted from its call before, that takes as long as in the job, where it only
computed between the two. Where it waited for calls to end, as at the end of a step, it is counted from the last call
that had ended there by then. Which of the two is the case, repeats of the call tell: the time that differs less.

A call starts once all ranks have made it and the call before it is over. From there it takes its recorded time, less
the time that the change saves. Calls that come so close that they would overlap may take less: down to the time for
which the busiest port of a machine is busy.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

from fairring.trace.records import Call

_STEADIER = 0.5  # times the other's deviation


class Replay:
    """calls: in order, each by rank, all ended, on one clock. The replay begins at the first.

    period: calls of a step. took: seconds from each call's start to its end, but for the first.
    """

    def __init__(self, calls: Sequence[Mapping[int, Call]], period: int = 1) -> None:
        # A small call may be over before an older, large one.
        self._ends = list(accumulate((max(one.ended or 0.0 for one in call.values()) for call in calls), max))
        self._submitted = [{rank: one.submitted for rank, one in call.items()} for call in calls]
        self._after = [dict[int, int]() for _ in calls]
        for rank in calls[0]:
            back = 0
            for index, call in enumerate(calls):
                while back + 1 < index and (calls[back + 1][rank].ended or 0.0) <= call[rank].submitted:
                    back += 1
                self._after[index][rank] = back
        self._waits = self._waiting(period)
        self._period = period
        starts = [max(max(made.values()), end) for made, end in zip(self._submitted[1:], self._ends, strict=False)]
        self.took = [max(0.0, end - start) for start, end in zip(starts, self._ends[1:], strict=True)]

    def _waiting(self, period: int) -> dict[int, set[int]]:
        """By rank: the places in a step at which it waits for calls before it makes the next."""
        since_call, since_end = _by_place(), _by_place()
        for index in range(1, len(self._ends)):
            for rank, submitted in self._submitted[index].items():
                since_call[rank][index % period].append(submitted - self._submitted[index - 1][rank])
                since_end[rank][index % period].append(submitted - self._ends[self._after[index][rank]])
        every = list(since_call.values())
        between = {place: min(statistics.median(of_rank[place]) for of_rank in every) for place in every[0]}
        begin = max(between, key=lambda place: between[place])  # of a step
        return {
            rank: {begin}
            | {
                place
                for place, times in places.items()
                if _deviation(since_end[rank][place]) < _STEADIER * _deviation(times)
            }
            for rank, places in since_call.items()
        }

    def seconds(
        self,
        without: Collection[int] = (),
        saved: Sequence[float] | None = None,
        busy: Sequence[float] | None = None,
    ) -> float:
        """The time from the end of the first call to the end of the last.

        without: ranks whose calls come as early as the others'. saved: seconds for each call but the first. busy:
        those of its busiest port; then calls overlap. Else they do not, unless they did in the job.
        """
        ends, made = self._ends[:1], self._submitted[0]
        for index in range(1, len(self._ends)):
            made = {rank: self._comes(index, rank, made, ends) for rank in made}
            latest = max((time for rank, time in made.items() if rank not in without), default=ends[-1])
            took = max(0.0, self.took[index - 1] - (saved[index - 1] if saved else 0.0))
            overlapped = self._ends[index - 1] > max(self._submitted[index].values())
            if busy and not overlapped:
                ends.append(max(latest + took, ends[-1] + min(busy[index - 1], took)))
            else:
                ends.append(max(latest, ends[-1]) + took)
        return ends[-1] - ends[0]

    def _comes(self, index: int, rank: int, made: Mapping[int, float], ends: Sequence[float]) -> float:
        """When the rank makes the call. made: when ranks made the one before; ends: of all before."""
        submitted = self._submitted[index][rank]
        if index % self._period in self._waits[rank]:
            after = self._after[index][rank]
            return ends[after] + submitted - self._ends[after]
        return made[rank] + submitted - self._submitted[index - 1][rank]


def _by_place() -> defaultdict[int, defaultdict[int, list[float]]]:
    return defaultdict(lambda: defaultdict(list))


def _deviation(times: Sequence[float]) -> float:
    middle = statistics.median(times)
    return statistics.median(abs(time - middle) for time in times)
