"""Every call of a group but objects', once: for tests of what must hold for all of them, on any device.

Values are small integers, so that sums are exact in every dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

ROOT = 1
Layout = Callable[[torch.Tensor], torch.Tensor]
Pairs = Iterable[tuple[torch.Tensor, torch.Tensor]]


def as_made(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


class EveryCall:
    """Each method makes the call of its name and returns pairs of what came and, on the CPU, of what should have."""

    def __init__(
        self,
        group: Any = None,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        shape: tuple[int, int] = (4, 6),
        written: Layout = as_made,
        read: Layout = as_made,
        alike: bool = False,
    ) -> None:
        """shape: of a rank's block. written, read: the layouts of outputs and inputs. alike: so are the rows."""
        self._group: Any = group or dist.group.WORLD
        self._device, self._dtype = device, dtype
        self._rank, self._ranks = dist.get_rank(group), dist.get_world_size(group)
        self._rows, self._columns = shape
        self._written, self._read, self._alike = written, read, alike

    def _of(self, rank: int, times: int = 1) -> torch.Tensor:
        """A rank's values, of so many blocks."""
        rows = torch.arange(times * self._rows, device="cpu").unsqueeze(1) * (0 if self._alike else 5)
        columns = torch.arange(self._columns, device="cpu").unsqueeze(0)
        return ((rows + columns + 3 * rank) % 13).to(self._dtype)

    def _block(self, rank: int, block: int) -> torch.Tensor:
        return self._of(rank, self._ranks)[block * self._rows : (block + 1) * self._rows]

    def _all(self) -> list[torch.Tensor]:
        return [self._of(rank) for rank in range(self._ranks)]

    def _arriving(self) -> list[torch.Tensor]:
        return [self._block(rank, self._rank) for rank in range(self._ranks)]

    def _input(self, times: int = 1) -> torch.Tensor:
        return self._read(self._of(self._rank, times)).to(self._device)

    def _inputs(self) -> list[torch.Tensor]:
        return [self._read(self._block(self._rank, block)).to(self._device) for block in range(self._ranks)]

    def _output(self, times: int = 1) -> torch.Tensor:
        zeros = torch.zeros(times * self._rows, self._columns, dtype=self._dtype, device="cpu")
        return self._written(zeros).to(self._device)

    def _outputs(self) -> list[torch.Tensor]:
        return [self._output() for _ in range(self._ranks)]

    def _in_place(self) -> torch.Tensor:
        return self._written(self._of(self._rank)).to(self._device)

    def _sum(self) -> torch.Tensor:
        return torch.stack(self._all()).sum(0)

    def all_reduce(self) -> Pairs:
        tensor = self._in_place()
        dist.all_reduce(tensor, group=self._group)
        return [(tensor, self._sum())]

    def all_reduce_max(self) -> Pairs:
        tensor = self._in_place()
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self._group)
        return [(tensor, torch.stack(self._all()).amax(0))]

    def all_reduce_coalesced(self) -> Pairs:
        tensors = [self._in_place(), self._in_place()]
        dist.all_reduce_coalesced(tensors, group=self._group)
        return [(tensor, self._sum()) for tensor in tensors]

    def all_reduce_by_the_manager(self) -> Pairs:
        tensors = [self._in_place(), self._in_place()]
        with dist._coalescing_manager(self._group):
            for tensor in tensors:
                dist.all_reduce(tensor, group=self._group)
        return [(tensor, self._sum()) for tensor in tensors]

    def all_reduce_sparse(self) -> Pairs:
        tensor = self._in_place().to_sparse()
        dist.all_reduce(tensor, group=self._group)
        return [(tensor.to_dense(), self._sum())]

    def reduce(self) -> Pairs:
        tensor = self._in_place()
        dist.reduce(tensor, ROOT, group=self._group)
        return [(tensor, self._sum())] if self._rank == ROOT else []

    def broadcast(self) -> Pairs:
        tensor = self._in_place()
        dist.broadcast(tensor, ROOT, group=self._group)
        return [(tensor, self._of(ROOT))]

    def all_gather(self) -> Pairs:
        outputs = self._outputs()
        dist.all_gather(outputs, self._input(), group=self._group)
        return zip(outputs, self._all(), strict=True)

    def all_gather_into_tensor(self) -> Pairs:
        output = self._output(self._ranks)
        dist.all_gather_into_tensor(output, self._input(), group=self._group)
        return [(output, torch.cat(self._all()))]

    def all_gather_into_tensor_coalesced(self) -> Pairs:
        outputs = [self._output(self._ranks) for _ in range(2)]
        self._group.allgather_into_tensor_coalesced(outputs, [self._input(), self._input()]).wait()
        return [(output, torch.cat(self._all())) for output in outputs]

    def all_gather_coalesced(self) -> Pairs:
        outputs = [[output] for output in self._outputs()]
        dist.all_gather_coalesced(outputs, [self._input()], group=self._group)
        return zip([one for (one,) in outputs], self._all(), strict=True)

    def gather(self) -> Pairs:
        outputs = self._outputs() if self._rank == ROOT else None
        dist.gather(self._input(), outputs, ROOT, group=self._group)
        return zip(outputs or [], self._all() if outputs else [], strict=True)

    def scatter(self) -> Pairs:
        output = self._output()
        dist.scatter(output, self._inputs() if self._rank == ROOT else None, ROOT, group=self._group)
        return [(output, self._block(ROOT, self._rank))]

    def reduce_scatter(self) -> Pairs:
        output = self._output()
        dist.reduce_scatter(output, self._inputs(), group=self._group)
        return [(output, torch.stack(self._arriving()).sum(0))]

    def reduce_scatter_tensor(self) -> Pairs:
        output = self._output()
        dist.reduce_scatter_tensor(output, self._input(self._ranks), group=self._group)
        return [(output, torch.stack(self._arriving()).sum(0))]

    def reduce_scatter_tensor_coalesced(self) -> Pairs:
        outputs, inputs = [self._output(), self._output()], [self._input(self._ranks), self._input(self._ranks)]
        self._group.reduce_scatter_tensor_coalesced(outputs, inputs, dist.ReduceScatterOptions()).wait()
        return [(output, torch.stack(self._arriving()).sum(0)) for output in outputs]

    def all_to_all_single(self) -> Pairs:
        output = self._output(self._ranks)
        dist.all_to_all_single(output, self._input(self._ranks), group=self._group)
        return [(output, torch.cat(self._arriving()))]

    def all_to_all(self) -> Pairs:
        outputs = self._outputs()
        dist.all_to_all(outputs, self._inputs(), group=self._group)
        return zip(outputs, self._arriving(), strict=True)

    def barrier(self) -> Pairs:
        dist.barrier(group=self._group)
        return []

    def _sent(self, source: int | None, **tag: int) -> Pairs:
        """From rank 0 to rank 1."""
        output = self._output()
        if self._rank == 0:
            dist.send(self._input(), 1, group=self._group, **tag)
        if self._rank != 1:
            return []
        assert dist.recv(output, source, group=self._group, **tag) == 0
        return [(output, self._of(0))]

    def send_and_recv(self) -> Pairs:
        return self._sent(0)

    def send_and_recv_with_a_tag(self) -> Pairs:
        return self._sent(0, tag=7)

    def recv_from_any(self) -> Pairs:
        return self._sent(None)

    def isend_and_irecv(self) -> Pairs:
        before, output = (self._rank - 1) % self._ranks, self._output()
        works: list[Any] = [
            dist.isend(self._input(), (self._rank + 1) % self._ranks, group=self._group, tag=3),
            dist.irecv(output, before, group=self._group, tag=3),
        ]
        for work in works:
            work.wait()
        return [(output, self._of(before))]

    def batch_isend_irecv(self) -> Pairs:
        after, before, output = (self._rank + 1) % self._ranks, (self._rank - 1) % self._ranks, self._output()
        operations = [
            dist.P2POp(dist.isend, self._input(), after, self._group),
            dist.P2POp(dist.irecv, output, before, self._group),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return [(output, self._of(before))]


CALLS = sorted(name for name in vars(EveryCall) if not name.startswith("_"))


def is_right(calls: EveryCall, name: str) -> bool:
    """Raises what the call raises."""
    return all(torch.equal(result.cpu(), expected) for result, expected in list(getattr(calls, name)()))


def fault(calls: EveryCall, name: str) -> str:
    """Why the call was wrong; empty if it was right."""
    try:
        return "" if is_right(calls, name) else f"{name}: another result"
    except Exception as error:
        return f"{name}: {error}"
