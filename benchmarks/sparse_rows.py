"""Which rows of a table each rank touches, and with which values: sums known exactly, so every element can be checked.

Rows are drawn alike on all ranks from a seed, so each rank knows all ranks' rows. A value depends on its row, its
column, its rank and the turn; like those of fairring/bench/pattern.py, the values are small integers.

Below: the bytes that a sparse all-reduce must move at each level, by its best form. At a level n members (ranks of a
machine, machines, sites) bring k rows each, already merged among whom they stand for; R rows are the result, the union
over the world. A row r bytes long carries its index; V dense rows of v bytes are the whole table. What a member moves
in one direction:

    owners     (k + R)(n-1)/n · r             each row goes once to its owner, who sums it; the result is gathered
    owners, dense upwards   k(n-1)/n · r + (V v + V/8)(n-1)/n    the result goes as a block, and a bit for each row
    one-shot   (n-1) k · r                    everyone's rows to everyone; at the outermost level alone
    dense      2 V (n-1)/n · v
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fairring.bench.job import Placement
from fairring.bench.pattern import fitting_period

UNIFORM, ZIPF = "uniform", "zipf"
DISTRIBUTIONS = (UNIFORM, ZIPF)
CHECKED_AT_ONCE = 8192  # rows
INDEX_BYTES = 8


def touched(rows: int, count: int, distribution: str, rank: int) -> Tensor:
    """Different rows, in no order.

    zipf: row i is i+1 times rarer than row 0, as in a table of words that stand by frequency.
    """
    draw = torch.Generator(torch.get_default_device()).manual_seed(rank + 1)
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


@dataclass(frozen=True)
class Table:
    rows: int  # V
    row_bytes: int  # v, without an index
    result: int  # R


def forms(brought: Sequence[int], table: Table, outermost: bool) -> dict[str, float]:
    """By form, the bytes of the busiest member of a group in its busier direction.

    brought: k of each member. Members own equal shares of the table and of the result.
    """
    n, everything, row = len(brought), sum(brought), table.row_bytes + INDEX_BYTES
    away = (n - 1) / n
    # A member gets the share that it owns of the rows that the others bring.
    down = max(max(k * away, (everything - k) / n) for k in brought) * row
    found = {
        "owners": down + table.result * away * row,
        "owners, dense upwards": down + (table.rows * table.row_bytes + table.rows / 8) * away,
        "dense": 2 * table.rows * table.row_bytes * away,
    }
    if outermost:
        found["one-shot"] = max(max((n - 1) * k, everything - k) for k in brought) * row
    return found


def bounds(brought: Mapping[str, Sequence[Sequence[int]]], table: Table) -> dict[str, float]:
    """By level, the bytes of the best form in its busiest group.

    brought: by level from the inside out, k of each member of each group. A level at which every group has one member
    moves nothing and is left out.
    """
    used = [level for level, groups in brought.items() if max(map(len, groups)) > 1]
    return {
        level: max(min(forms(group, table, outermost=level == used[-1]).values()) for group in brought[level])
        for level in used
    }
