"""The time that a job's calls would have taken with something changed: they are replayed one after the other.

A rank makes a call with the delay that it had in the job, counted from the last call that had ended there by then. A
call starts once all ranks have made it and the call before it is over. From there it takes its recorded time, less the
time that the change saves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

from fairring.trace.records import Call


class Replay:
    """calls: in order, each by rank, all ended, on one clock. The replay begins at the first."""

    def __init__(self, calls: Sequence[Mapping[int, Call]]) -> None:
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

    def seconds(self, without: Collection[int] = (), saved: Sequence[float] | None = None) -> float:
        """The time from the end of the first call to the end of the last.

        without: ranks whose calls come as early as the others'. saved: seconds for each call but the first.
        """
        ends = self._ends[:1]
        for index in range(1, len(self._ends)):
            before = max(max(self._submitted[index].values()), self._ends[index - 1])
            took = max(0.0, self._ends[index] - before)
            late = max(
                (
                    ends[self._after[index][rank]] + time - self._ends[self._after[index][rank]]
                    for rank, time in self._submitted[index].items()
                    if rank not in without
                ),
                default=ends[-1],
            )
            less = saved[index - 1] if saved else 0.0
            ends.append(max(late, ends[-1]) + max(0.0, took - less))
        return ends[-1] - ends[0]

    def gained(self, without: Collection[int] = (), saved: Sequence[float] | None = None) -> float:
        """The seconds by which the job would be shorter."""
        return max(0.0, self.seconds() - self.seconds(without, saved))
