"""The speed of one machine's memory: a plain copy on all ranks at once.

An all-reduce on one machine has to read each rank's N bytes and to write N bytes of result to each rank; all else can
stay in the processors' caches. A copy of N bytes from one tensor to another does just that, so the time of an
all-reduce is compared with the time of a copy.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from fairring.bench.arithmetic import percentile

LEAST_ROUNDS = 7


def copy_seconds(size_bytes: int, rounds: int) -> float:
    """Median time of the slowest rank to copy that many bytes; called by all ranks of the default group at once."""
    source = torch.ones(size_bytes, dtype=torch.uint8)
    target = torch.zeros(size_bytes, dtype=torch.uint8)
    slowest = []
    for _ in range(max(rounds, LEAST_ROUNDS)):
        dist.barrier()
        begin = time.perf_counter()
        target.copy_(source)
        seconds = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        slowest.append(float(seconds))
    return percentile(slowest, 50)
