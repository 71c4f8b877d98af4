"""Which rows of a table each rank touches, and with which values: sums known exactly, so every element can be checked.

Rows are drawn alike on all ranks from a seed, so each rank knows all ranks' rows. A value depends on its row, its
column, its rank and the turn; like those of pattern.py, the values are small integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fairring.bench.pattern import fitting_period
from fairring.bench.placement import Placement

UNIFORM, ZIPF = "uniform", "zipf"
DISTRIBUTIONS = (UNIFORM, ZIPF)
CHECKED_AT_ONCE = 8192  # rows


def touched(rows: int, count: int, distribution: str, rank: int) -> Tensor:
    """Different rows, in no order.

    zipf: row i is i+1 times rarer than row 0, as in a table of words that stand by frequency.
    """
    draw = torch.Generator().manual_seed(rank + 1)
    if distribution == UNIFORM:
        order: Tensor = torch.randperm(rows, generator=draw)
    else:  # sorted by log weight + Gumbel noise, rows are in the order of a weighted draw without replacement
        noise = -torch.empty(rows, dtype=torch.float64).exponential_(generator=draw).log()
        order = torch.argsort(torch.arange(1.0, rows + 1, dtype=torch.float64).log() - noise)
    return order.narrow(0, 0, count)


@dataclass(frozen=True)
class Touched:
    """The rows of all ranks."""

    rows: int
    width: int
    dtype: torch.dtype
    of_rank: list[Tensor]

    @cached_property
    def union(self) -> Tensor:
        rows: Tensor = torch.cat(self.of_rank).unique()
        return rows

    def brought(self, places: list[Placement]) -> dict[str, list[list[int]]]:
        """By level, the number of rows that each member of each group brings: ranks, machines, sites."""
        machines = {place.machine: (place.site, place.machine) for place in places}
        sites = {place.site for place in places}

        def union(chosen: list[int]) -> int:
            return len(torch.cat([self.of_rank[rank] for rank in chosen]).unique())

        def ranks(site: str, machine: int | None = None) -> list[int]:
            return [p.rank for p in places if p.site == site and machine in (None, p.machine)]

        return {
            "machine": [[len(self.of_rank[rank]) for rank in ranks(*whose)] for whose in machines.values()],
            "rail": [[union(ranks(*whose)) for whose in machines.values() if whose[0] == site] for site in sites],
            "site": [[union(ranks(site)) for site in sorted(sites)]],
        }

    def sparse(self, rank: int, turn: int) -> Tensor:
        """This rank's rows, as autograd leaves them: in no order, not coalesced."""
        rows = self.of_rank[rank]
        indices, values = rows.unsqueeze(0).clone(), self._patterns[self._phases(rank, turn)]
        return torch.sparse_coo_tensor(indices, values, (self.rows, self.width), check_invariants=False)

    def fill(self, dense: Tensor, rank: int, turn: int) -> None:
        dense.zero_()
        dense.index_copy_(0, self.of_rank[rank], self._patterns[self._phases(rank, turn)])

    def wrong(self, result: Tensor, turn: int) -> int:
        """The number of elements of a result, dense or sparse, that are not the sum; all of them if the rows differ."""
        world = len(self.of_rank)
        # How often each pattern occurs together in each row.
        counts = torch.zeros(self.rows, self._period)
        for rank in range(world):
            counts[self.of_rank[rank], self._phases(rank, turn)] += 1
        if result.is_sparse:
            if not (result.is_coalesced() and result.indices()[0].equal(self.union)):
                return result.numel()
            counts, result = counts[self.union], result.values()
        patterns = self._patterns.float()
        pairs = zip(counts.split(CHECKED_AT_ONCE), result.split(CHECKED_AT_ONCE), strict=True)
        return sum(int(((some @ patterns).to(self.dtype) != part).sum()) for some, part in pairs)

    @cached_property
    def _period(self) -> int:
        return fitting_period(self.dtype, len(self.of_rank))

    @cached_property
    def _patterns(self) -> Tensor:
        """A row of values for each phase."""
        phases = torch.arange(self._period).unsqueeze(1)
        return ((phases + torch.arange(self.width)) % self._period).to(self.dtype)

    def _phases(self, rank: int, turn: int) -> Tensor:
        return (self.of_rank[rank] + 3 * rank + turn) % self._period
