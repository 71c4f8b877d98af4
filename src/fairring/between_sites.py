"""A communication hook for DistributedDataParallel, by which gradients cross between sites in half the bytes.

    from fairring.between_sites import Residuals, as_bf16
    replica.register_comm_hook(Residuals(), as_bf16)

The sum of each site is rounded to bf16 before it is sent to the others, and so is the sum of all sites. Rounding errors
are kept and added in the next step. All ranks get the same bits. docs/algorithms.md lists the promises.
"""

# Without `from __future__ import annotations`: DDP compares the hook's annotations with the types themselves.

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fairring import _core


class Residuals:
    """The rounding errors of each bucket's gradients: as many bytes as the gradients, on every rank.

    Each model needs an object of its own. group: the one that DDP uses; the default group if none is given.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self._of_bucket: dict[int, tuple[list[int], Tensor]] = {}

    def of(self, bucket: dist.GradBucket) -> Tensor:
        """The bucket's residuals: zeros at first, and again when the bucket holds other parameters than before."""
        whose = [parameter.data_ptr() for parameter in bucket.parameters()]
        known = self._of_bucket.get(bucket.index())
        if known is None or known[0] != whose:
            known = self._of_bucket[bucket.index()] = (whose, torch.zeros_like(bucket.buffer()))
        return known[1]

    def forget(self) -> None:
        """Drops all residuals: after a failed call they are meaningless."""
        self._of_bucket.clear()


def as_bf16(residuals: Residuals, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """The hook: returns the mean of the gradients. Gradients that are not fp32 on the CPU cross as they are.

    Raises ValueError if the group is not Fairring's.
    """
    gradients = bucket.buffer()
    group: Any = residuals.group or dist.group.WORLD
    if gradients.dtype is not torch.float32 or gradients.device.type != "cpu":
        plain = dist.all_reduce(gradients, op=dist.ReduceOp.AVG, group=group, async_op=True)
        return _gradients_of(plain.get_future(), residuals)
    backend = group._get_backend(gradients.device)
    mean = dist.ReduceOp(dist.ReduceOp.AVG)
    work = _core.all_reduce_between_sites(backend, "bf16", gradients, residuals.of(bucket), mean)
    return _gradients_of(work.get_future(), residuals)


def _gradients_of(future: torch.futures.Future[list[Tensor]], residuals: Residuals) -> torch.futures.Future[Tensor]:
    def first(done: torch.futures.Future[list[Tensor]]) -> Tensor:
        try:
            return done.value()[0]
        except Exception:
            residuals.forget()
            raise

    return future.then(first)
