"""Sums that cross between sites in fewer bytes: a half, a quarter or an eighth.

    from fairring.between_sites import Residuals, compressed
    replica.register_comm_hook(Residuals("int8"), compressed)

The sum of each site is rounded to the format before it is sent to the others, and so is the sum of all sites. Rounding
errors are kept and added in the next step. All ranks get the same bits. docs/algorithms.md lists the formats and their
promises.
"""

# Without `from __future__ import annotations`: DDP compares the hook's annotations with the types themselves.

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fairring import _core

Format = str | None  # "bf16", "int8" or "int4"; None: as they are


def all_reduce(
    tensor: Tensor,
    format: str,  # noqa: A002
    residual: Tensor | None = None,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
) -> dist.Work:
    """Starts an all-reduce, in place, that crosses between sites in the format "bf16", "int8" or "int4".

    tensor: contiguous fp32 on the CPU. residual: likewise, of as many elements, zeros before the first call. It keeps
    what rounding takes, for the next call with it. None: that is dropped. op: SUM or AVG. All ranks must give the same
    format. Raises ValueError.
    """
    if residual is None:
        residual = torch.zeros_like(tensor)
    backend = _backend(group, tensor)
    return _core.all_reduce_between_sites(backend, format, tensor, residual, dist.ReduceOp(op))


def _backend(group: dist.ProcessGroup | None, tensor: Tensor) -> Any:
    ours: Any = group or dist.group.WORLD
    return ours._get_backend(tensor.device)


class Residuals:
    """The rounding errors of each bucket's gradients: as many bytes as the gradients, on every rank.

    Each model needs an object of its own. format: of all buckets, or a function that gives each bucket's, the same on
    all ranks. group: the one that DDP uses; the default group if none is given.
    """

    def __init__(
        self,
        format: Format | Callable[[dist.GradBucket], Format] = "bf16",  # noqa: A002
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self._format = format
        self.group = group
        self._of_bucket: dict[int, _Kept] = {}
        self._loaded: dict[tuple[int, ...], Tensor] = {}  # that no bucket has asked for yet
        self._place: tuple[int, int] | None = None

    def format_of(self, bucket: dist.GradBucket) -> Format:
        return self._format(bucket) if callable(self._format) else self._format

    def of(self, bucket: dist.GradBucket) -> Tensor:
        """The bucket's residuals: zeros at first, and again when the bucket holds other parameters than before.

        So are all buckets' when this rank or the number of ranks has changed: other elements are its part then.
        """
        backend = _backend(self.group, bucket.buffer())
        place = (backend.rank(), backend.size())
        if place != self._place:
            self.forget()
            self._place = place
        whose = [parameter.data_ptr() for parameter in bucket.parameters()]
        kept = self._of_bucket.get(bucket.index())
        if kept is None or kept.whose != whose:
            shape = (bucket.index(), *(parameter.numel() for parameter in bucket.parameters()))
            residual = self._loaded.pop(shape, None)
            kept = _Kept(whose, shape, torch.zeros_like(bucket.buffer()) if residual is None else residual)
            self._of_bucket[bucket.index()] = kept
        return kept.residual

    def forget(self) -> None:
        """Drops all residuals: after a failed call they are meaningless."""
        self._of_bucket.clear()
        self._loaded.clear()

    def state_dict(self) -> dict[str, Any]:
        """The residuals of this rank, for a checkpoint: each rank saves its own, between two steps."""
        buckets = self._loaded | {kept.shape: kept.residual for kept in self._of_bucket.values()}
        return {"place": self._place, "buckets": buckets}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on with what this rank saved. A bucket of other sizes begins with zeros, as do all in another group.

        DDP makes its buckets anew after the first step. What was saved waits for buckets of its sizes.
        """
        self.forget()
        self._place = state["place"]
        self._loaded = {shape: residual.clone() for shape, residual in state["buckets"].items()}


@dataclass
class _Kept:
    whose: list[int]  # the addresses of the bucket's parameters
    shape: tuple[int, ...]  # its index, and the elements of each: the same in another process
    residual: Tensor


def compressed(residuals: Residuals, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """The hook: returns the mean of the gradients. Gradients that are not fp32 on the CPU cross as they are.

    Raises ValueError if the group is not Fairring's.
    """
    gradients = bucket.buffer()
    format_ = residuals.format_of(bucket)
    if format_ is None or gradients.dtype is not torch.float32 or gradients.device.type != "cpu":
        plain = dist.all_reduce(gradients, op=dist.ReduceOp.AVG, group=residuals.group, async_op=True)
        return _gradients_of(plain.get_future(), residuals)
    work = all_reduce(gradients, format_, residuals.of(bucket), dist.ReduceOp.AVG, residuals.group)
    return _gradients_of(work.get_future(), residuals)


def _gradients_of(future: torch.futures.Future[list[Tensor]], residuals: Residuals) -> torch.futures.Future[Tensor]:
    def first(done: torch.futures.Future[list[Tensor]]) -> Tensor:
        try:
            return done.value()[0]
        except Exception:
            residuals.forget()
            raise

    return future.then(first)
