"""A rank: sparse all-reduces drawn at random, beside the sums of the same tensors made dense; prints cases and faults.

Arguments: how many cases, and the operations and the dtypes to draw from, as lists with commas. Values are small
integers, so that sums are exact in every dtype. Each call is drawn alike on all ranks: its shape, and how the ranks'
rows overlap; its rows are each rank's own. The last word is a hash of all results' bits.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import fairring  # noqa: F401  registers the backend on torch before 2.15

OVERLAPS = ["random", "dense", "equal", "distinct", "one empty", "one full", "none", "skewed"]
LARGEST = 3  # of a value: sums of duplicates over all ranks stay below 2⁸, what bfloat16 holds
MOST_AT_ONCE = 6


@dataclass(frozen=True)
class Case:
    """A call. shape: the sparse dimensions, then the dense ones."""

    number: int
    shape: tuple[int, ...]
    sparse_dims: int
    dtype: torch.dtype
    op: str
    overlap: str
    coalesced: bool

    @property
    def rows(self) -> int:
        return int(torch.tensor(self.shape[: self.sparse_dims]).prod())

    def tensor(self, rank: int, world: int) -> Tensor:
        """The tensor that this rank brings."""
        draw = torch.Generator().manual_seed(self.number * 100 + rank)
        keys = self._keys(rank, world, draw)
        sizes = self.shape[: self.sparse_dims]
        indices = torch.stack(torch.unravel_index(keys, sizes)) if len(keys) else torch.zeros(len(sizes), 0).long()
        values = torch.randint(-LARGEST, LARGEST + 1, (len(keys), *self.shape[self.sparse_dims :]), generator=draw)
        made = torch.sparse_coo_tensor(indices, values.to(self.dtype), self.shape, check_invariants=True)
        return made.coalesce() if self.coalesced else made

    def _keys(self, rank: int, world: int, draw: torch.Generator) -> Tensor:
        """Row numbers in no order, some of them twice."""
        few = int(torch.randint(1, min(self.rows, 20) + 1, (1,), generator=draw))
        some = torch.randint(self.rows, (few,), generator=draw)
        if self.overlap == "equal":
            return torch.arange(0, self.rows, 3)
        if self.overlap == "dense":
            return torch.randperm(self.rows, generator=draw)
        if self.overlap == "distinct":
            return torch.arange(self.rows)[rank::world]
        if self.overlap == "skewed":
            return some // 5
        nothing = {"none": True, "one empty": rank == self.number % world, "one full": rank != self.number % world}
        return some[:0] if nothing.get(self.overlap) else some

    def fault(self, result: Tensor, brought: list[Tensor]) -> str | None:
        """The fault in the result of the tensors that the ranks brought; None if there is none."""
        if not result.is_sparse or not result.is_coalesced() or result.shape != self.shape:
            return f"layout {result.layout}, coalesced {result.is_coalesced()}, shape {tuple(result.shape)}"
        if not result.indices().equal(torch.cat([one._indices() for one in brought], dim=1).unique(dim=1)):
            return "other rows"
        total = torch.stack([one.to(torch.float64).to_dense() for one in brought]).sum(0)
        if self.op == "SUM":
            return None if result.to_dense().double().equal(total) else "other values"
        close = torch.finfo(self.dtype).eps * len(brought)
        average = total / len(brought)
        return None if torch.allclose(result.to_dense().double(), average, rtol=close, atol=close) else "other values"


def cases(operations: list[str], dtypes: list[str]) -> Iterator[Case]:
    draw = random.Random(9)
    number = 0
    while True:
        sparse = tuple(draw.choice([1, 2, 5, 16, 70]) for _ in range(draw.choice([1, 1, 2, 3])))
        dense = tuple(draw.choice([1, 3, 8, 33]) for _ in range(draw.choice([0, 1, 1, 2])))
        if len(sparse) == 3:
            sparse = (sparse[0], sparse[1] % 16 + 1, sparse[2] % 5 + 1)
        case = Case(
            number,
            (*sparse, *dense),
            len(sparse),
            getattr(torch, draw.choice(dtypes)),
            draw.choice(operations),
            draw.choice(OVERLAPS),
            draw.random() < 0.3,
        )
        number += 1
        if case.rows * max(1, torch.Size(dense).numel()) < 30_000:
            yield case


def reduce_all(tensors: list[Tensor], ops: list[str], own: random.Random) -> None:
    """In one go: one synchronous call, or several asynchronous ones that are waited for in an order of the rank's."""
    together = zip(tensors, [getattr(dist.ReduceOp, op) for op in ops], strict=True)
    if len(tensors) == 1:
        dist.all_reduce(*next(together))
        return
    works: list[Any] = [dist.all_reduce(tensor, op=op, async_op=True) for tensor, op in together]
    own.shuffle(works)
    for work in works:
        work.wait()


def main() -> None:
    count, operations, dtypes = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3].split(",")
    dist.init_process_group("fairring")
    rank, world = dist.get_rank(), dist.get_world_size()
    together, own = random.Random(4), random.Random(rank)
    digest, faults, done = hashlib.sha256(), [], 0
    drawn = cases(operations, dtypes)
    while done < count:
        chosen = list(islice(drawn, min(count - done, together.randint(1, MOST_AT_ONCE))))
        brought = [[case.tensor(one, world) for one in range(world)] for case in chosen]
        results = [tensors[rank].clone() for tensors in brought]
        reduce_all(results, [case.op for case in chosen], own)
        for case, tensors, result in zip(chosen, brought, results, strict=True):
            fault = case.fault(result, tensors)
            faults += [f"{fault} in {case}"] if fault else []
            for part in (result._indices(), result._values()):
                digest.update(bytes(part.contiguous().untyped_storage()))
        done += len(chosen)
    print(f"cases {done} wrong {len(faults)} {digest.hexdigest()}", *faults[:5])
    dist.destroy_process_group()


main()
