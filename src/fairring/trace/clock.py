"""One clock for the ranks of a job.

Every heartbeat carries its rank's clock reading, and its receiver keeps the least lead of its own clock over that: the
difference of the two clocks plus the time of the fastest beat on its way. The leads of both directions give the
difference to within half of their sum, however long the ways take.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from fairring.trace.records import RankTrace


@dataclass(frozen=True)
class Offset:
    """seconds: to be added to a rank's times. error: by how much that may be wrong; None: unknown."""

    seconds: float
    error: float | None


def offsets(ranks: Sequence[RankTrace]) -> dict[int, Offset]:
    """By rank, the offset to the first rank's clock: over the chain of ranks with the least error.

    A rank that has exchanged beats with no other is placed by its machine's date, which may be wrong by any amount.
    """
    by_rank = {one.rank: one for one in ranks}
    root = ranks[0].rank
    found: dict[int, Offset] = {}
    queue = [(0.0, root, 0.0)]
    while queue:
        error, rank, seconds = heapq.heappop(queue)
        if rank in found:
            continue
        found[rank] = Offset(seconds, error)
        for peer, one in by_rank.items():
            between = _between(by_rank[rank], one)
            if peer not in found and between is not None and between.error is not None:
                heapq.heappush(queue, (error + between.error, peer, seconds + between.seconds))
    first = by_rank[root]
    for rank, one in by_rank.items():
        if rank not in found:
            found[rank] = Offset(one.clock_zero - first.clock_zero, None)
    return found


def _between(here: RankTrace, there: RankTrace) -> Offset | None:
    """The offset that turns the times of `there` into those of `here`."""
    if here.machines[here.rank] == here.machines[there.rank]:
        return Offset(0.0, 0.0)
    if there.rank not in here.leads or here.rank not in there.leads:
        return None
    forth, back = here.leads[there.rank], there.leads[here.rank]
    return Offset((forth - back) / 2, max(0.0, (forth + back) / 2))
