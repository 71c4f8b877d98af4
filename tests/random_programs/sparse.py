"""Steps that reduce sparse tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from random_programs.steps import Call, Drawing, Member, Result, Step, Tensors
from random_programs.values import FLAVOURS, FLOATS, INTEGERS, SUMS, Operation, flat
from random_programs.world import KIB


def _kinds(operation: Operation) -> tuple[str, ...]:
    return ("float32", *FLOATS, *(INTEGERS[:5] if operation.name != "PREMUL_SUM" else ()))


@dataclass(frozen=True)
class SparseAllReduce(Step):
    """tensors.shape: `dimensions` sparse ones, then dense ones. counts: entries of each member.

    spread: any (an index may come again), each (none does, and they stand in order), or same (as any, equal on all).
    """

    operation: Operation
    tensors: Tensors
    dimensions: int
    counts: tuple[int, ...]
    spread: str

    @staticmethod
    def draw(drawing: Drawing) -> SparseAllReduce:
        group = drawing.group()
        operation = drawing.operation(group, of=SUMS)
        return SparseAllReduce._drawn(drawing, group, operation, drawing.draw.choice(_kinds(operation)))

    @staticmethod
    def draw_each(drawing: Drawing) -> Iterator[SparseAllReduce]:
        """Every operation and dtype."""
        for operation in (drawing.operation(0, of=[name]) for name in SUMS):
            for dtype in _kinds(operation)[1:]:
                yield SparseAllReduce._drawn(drawing, 0, operation, dtype)

    @staticmethod
    def _drawn(drawing: Drawing, group: int, operation: Operation, dtype: str) -> SparseAllReduce:
        draw = drawing.draw
        dimensions = draw.choice((1, 1, 1, 2, 3))
        side = draw.choice((1, 2, 10, 47, int(3000 ** (1 / dimensions)), int(60_000 ** (1 / dimensions))))
        dense = draw.choice(((), (), (1,), (3,), (4, 2), (64,)))
        row_bytes = getattr(torch, dtype).itemsize * math.prod(dense)
        most = max(1, drawing.elements(row_bytes, 128 * KIB))
        counts = [draw.choice((0, most, draw.randint(0, most))) for _ in range(drawing.size(group))]
        shape, flavour = (side,) * dimensions + dense, draw.choice(FLAVOURS)
        tensors = Tensors(drawing.number, 0, dtype, shape, flavour, None)
        spread = draw.choice(("any", "any", "each", "same"))
        return SparseAllReduce(drawing.number, group, operation, tensors, dimensions, tuple(counts), spread)

    def calls(self, member: Member) -> list[Call]:
        name = f"step {self.number} sparse all_reduce {self.operation} {self.tensors} {self.counts} {self.spread}"
        keys, values = self._entries(member, member.place)
        indices = torch.from_numpy(np.stack(np.unravel_index(keys, self._sparse_shape())).astype(np.int64))
        in_order = True if self.spread == "each" else None
        here = torch.sparse_coo_tensor(indices, values, self.tensors.shape, is_coalesced=in_order)

        def start() -> Any:
            operation = self.operation.reduce_op(member.place, self.tensors.dtype)
            return dist.all_reduce(here, operation, member.group, async_op=member.later)

        def results() -> list[Result]:
            wanted_keys, wanted = self._expected(member)
            got_keys = np.ravel_multi_index(tuple(here._indices().numpy()), self._sparse_shape())
            return [
                Result(f"{name}: coalesced", torch.tensor(here.is_coalesced()), torch.tensor(True)),
                Result(f"{name}: indices", torch.from_numpy(got_keys), torch.from_numpy(wanted_keys), shared=True),
                Result(name, flat(here._values()), wanted, "sparse", shared=True),
            ]

        return [Call(name, self.group, start, results)]

    def _sparse_shape(self) -> tuple[int, ...]:
        return self.tensors.shape[: self.dimensions]

    def _entries(self, member: Member, place: int) -> tuple[Any, Tensor]:
        """A member's keys, the places of its rows, and their values."""
        whose = 0 if self.spread == "same" else place
        draw = np.random.default_rng((member.seed, self.number, whose, 7))
        keys = draw.integers(0, math.prod(self._sparse_shape()), self.counts[place])
        if self.spread == "each":
            keys = np.unique(keys)
        return keys, member.data(self.tensors, place, (len(keys), *self.tensors.shape[self.dimensions :]))

    def _expected(self, member: Member) -> tuple[Any, Tensor]:
        entries = [self._entries(member, place) for place in member.everyone]
        keys = np.unique(np.concatenate([each for each, _ in entries]))
        parts = []
        for own, values in entries:  # a rank first sums its own entries of a row, in their order
            wide = values.float() if values.dtype.itemsize == 2 and values.is_floating_point() else values
            table = np.zeros((len(keys), *values.shape[1:]), wide.numpy().dtype)
            with np.errstate(over="ignore", invalid="ignore"):
                np.add.at(table, np.searchsorted(keys, own), wide.numpy())
            parts.append(flat(torch.from_numpy(table).to(values.dtype)))
        return keys, self.operation.expected(parts, member.order)
