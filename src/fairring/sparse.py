"""Exchanges many sparse gradients of DistributedDataParallel at once.

    fairring.sparse.fuse(replica)

DDP gives each sparse gradient (nn.Embedding(sparse=True)) a bucket, and so an all-reduce, of its own, whatever its
size. fuse() lays tables whose rows are alike end to end as one taller table, which takes one all-reduce. It starts when
the last of these tables has its gradient, while the rest of the backward pass goes on. It works with any backend that
all-reduces sparse tensors, and it gives the gradients that DDP gives without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

Kind = tuple[torch.dtype, torch.device, torch.Size]  # tables of the same kind can share an exchange
Exchange = Future[None]


def fuse(replica: DistributedDataParallel) -> None:
    """Registers the communication hook. Call it once, before the first step, on all ranks.

    Dense gradients take torch's own hook, which divides by the world's size where DDP multiplies by its reciprocal, so
    the last bit may differ unless the size is a power of two. Raises RuntimeError if the replica has a hook already.
    """
    # Not the method itself: DDP refuses annotations that are strings.
    replica.register_comm_hook(_Fusion(replica.process_group), lambda fusion, bucket: fusion.hook(bucket))


class _Fusion:
    """The gradients that wait in the present backward pass, by kind.

    The first pass counts the tables of each kind, so its exchanges wait for DDP's last bucket. Buckets come in the same
    order on all ranks, and so do the exchanges.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self._tables: Counter[Kind] = Counter()  # of the pass before
        self._seen: Counter[Kind] = Counter()
        self._waiting: dict[Kind, list[_Member]] = {}

    def hook(self, bucket: dist.GradBucket) -> Future[Tensor]:
        if bucket.index() == 0:  # a pass that ended in an error leaves some waiting
            self._seen, self._waiting = Counter(), {}
        gradient = bucket.buffer()
        reduced = self._add(gradient) if gradient.is_sparse else allreduce_hook(self._group, bucket)
        if bucket.is_last():
            for kind in list(self._waiting):
                self._start(kind)
            self._tables = self._seen
        return reduced

    def _add(self, gradient: Tensor) -> Future[Tensor]:
        kind = (gradient.dtype, gradient.device, gradient.shape[1:])
        member = _Member(gradient)
        self._waiting.setdefault(kind, []).append(member)
        self._seen[kind] += 1
        if self._seen[kind] == self._tables[kind]:
            self._start(kind)
        return member.reduced

    def _start(self, kind: Kind) -> None:
        members = self._waiting.pop(kind)
        gradients = [member.gradient for member in members]
        table = _concatenate(gradients)
        table.div_(self._group.size())  # before the sum, as DDP does
        stream = torch.cuda.current_stream(table.device) if table.is_cuda else None
        work: Any = dist.all_reduce(table, group=self._group, async_op=True)

        def distribute(done: Future[Any]) -> None:
            done.value()  # raises the exchange's error
            _distribute(table, gradients)
            if stream is not None:
                _hand_over(gradients, stream)

        def tell(exchange: Exchange) -> None:
            for member in members:
                member.exchanged.set_result(exchange)

        work.get_future().then(distribute).add_done_callback(tell)


class _Member:
    """A gradient that waits for its exchange. reduced: with the exchange's error if that failed."""

    def __init__(self, gradient: Tensor) -> None:
        self.gradient = gradient
        self.exchanged: Future[Exchange] = Future()
        self.reduced: Future[Tensor] = self.exchanged.then(self._take)

    def _take(self, exchanged: Future[Exchange]) -> Tensor:
        exchanged.value().value()  # raises the error
        return self.gradient


def _first_rows(gradients: Sequence[Tensor]) -> list[int]:
    return list(accumulate((gradient.shape[0] for gradient in gradients), initial=0))


def _concatenate(gradients: Sequence[Tensor]) -> Tensor:
    """The tables as one, end to end."""
    if len(gradients) == 1:
        return gradients[0]
    firsts = _first_rows(gradients)
    indices = [gradient._indices() + first for gradient, first in zip(gradients, firsts[:-1], strict=True)]
    values = torch.cat([gradient._values() for gradient in gradients])
    shape = (firsts[-1], *gradients[0].shape[1:])
    return torch.sparse_coo_tensor(torch.cat(indices, dim=1), values, shape, check_invariants=False)


def _distribute(table: Tensor, gradients: Sequence[Tensor]) -> None:
    """Gives the reduced table's rows back to their gradients, whose values are then views of it."""
    if len(gradients) == 1:
        return
    table = table.coalesce()
    indices, values = table.indices()[0], table.values()
    firsts = _first_rows(gradients)
    cuts = torch.searchsorted(indices, torch.tensor(firsts, device=indices.device)).tolist()
    for gradient, first, begin, end in zip(gradients, firsts[:-1], cuts[:-1], cuts[1:], strict=True):
        own = (indices[begin:end] - first).unsqueeze(0)
        # In place and without a copy: DDP, too, holds this very tensor.
        gradient.data = torch.sparse_coo_tensor(
            own, values[begin:end], gradient.shape, is_coalesced=True, check_invariants=False
        )


def _hand_over(gradients: Sequence[Tensor], stream: torch.cuda.Stream) -> None:
    """Orders the stream on which DDP and the optimizer read the gradients behind the callback's stream that made them.

    The future that DDP waits for knows of no device.
    """
    for gradient in gradients:
        gradient._indices().record_stream(stream)
        gradient._values().record_stream(stream)
    torch.cuda.current_stream(stream.device).synchronize()
