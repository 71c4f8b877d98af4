"""The bytes that a sparse all-reduce must move at each level, by its best form. Pure functions, no torch.

At a level n members (ranks of a machine, machines, sites) bring k rows each, already merged among whom they stand for;
R rows are the result, the union over the world. A row r bytes long carries its index; V dense rows of v bytes are the
whole table. What a member moves in one direction:

    owners     (k + R)(n-1)/n · r             each row goes once to its owner, who sums it; the result is gathered
    owners, dense upwards   k(n-1)/n · r + (V v + V/8)(n-1)/n    the result goes as a block, and a bit for each row
    one-shot   (n-1) k · r                    everyone's rows to everyone; at the outermost level alone
    dense      2 V (n-1)/n · v
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

INDEX_BYTES = 8


@dataclass(frozen=True)
class Table:
    rows: int  # V
    row_bytes: int  # v, without an index
    result: int  # R

    @property
    def with_index(self) -> int:
        return self.row_bytes + INDEX_BYTES


@dataclass(frozen=True)
class Bound:
    """Bytes of the busiest member in its busier direction."""

    form: str
    bytes: float


def forms(brought: Sequence[int], table: Table, outermost: bool) -> list[Bound]:
    """The bounds of one group. brought: k of each member. Members own equal shares of the table and of the result."""
    n, everything = len(brought), sum(brought)
    away = (n - 1) / n
    # A member gets the share that it owns of the rows that the others bring.
    down = max(max(k * away, (everything - k) / n) for k in brought) * table.with_index
    up = table.result * away * table.with_index
    block = (table.rows * table.row_bytes + table.rows / 8) * away
    found = [
        Bound("owners", down + up),
        Bound("owners, dense upwards", down + block),
        Bound("dense", 2 * table.rows * table.row_bytes * away),
    ]
    if outermost:
        found.append(Bound("one-shot", max(max((n - 1) * k, everything - k) for k in brought) * table.with_index))
    return found


def bounds(brought: Mapping[str, Sequence[Sequence[int]]], table: Table) -> dict[str, Bound]:
    """By level, the bounds of its busiest group. brought: by level from the inside out, k of each member of each group.

    A level at which every group has one member moves nothing and is left out.
    """
    used = [level for level, groups in brought.items() if max(map(len, groups)) > 1]
    return {
        level: max(
            (_best(group, table, outermost=level == used[-1]) for group in brought[level]),
            key=lambda bound: bound.bytes,
        )
        for level in used
    }


def _best(group: Sequence[int], table: Table, outermost: bool) -> Bound:
    return min(forms(group, table, outermost), key=lambda bound: bound.bytes)
