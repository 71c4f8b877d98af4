"""The memory that a contestant needs on this rank, though it shares its process with others.

The kernel keeps the process's high-water mark (VmHWM), and forgets it when asked to. Around each go the mark is reset,
so what a go took on top is its own, and what it kept is added to what it had kept before. Memory that is shared between
ranks counts on each of them, as the kernel counts it; how much of it that is stands beside.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from fairring.bench.rows import percentile

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # proc(5)
LEAST_ROUNDS = 7  # of copies


@dataclass(frozen=True)
class Resident:
    """Memory of this process in bytes: now, the most since the last reset, and how much of now is shared memory."""

    now: int
    peak: int
    shared: int


def resident() -> Resident:
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE))
    now, peak, shared = (int(fields.get(name, 0)) * 1024 for name in ("VmRSS", "VmHWM", "RssShmem"))
    return Resident(now, peak, shared)


class Footprint:
    """Memory of one contestant. peak: the most bytes at any time; shared: the shared part of `kept`. device_peak: the
    most that torch took of a GPU beyond what it had before."""

    def __init__(self) -> None:
        self.peak = self.shared = self.device_peak = self._kept = 0

    @contextmanager
    def watch(self) -> Iterator[None]:
        CLEAR_REFS.write_text(RESET_PEAK)
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
        on_device = torch.cuda.memory_allocated()
        before = resident()
        yield
        after = resident()
        self.device_peak = max(self.device_peak, torch.cuda.max_memory_allocated() - on_device)
        self.peak = max(self.peak, self._kept + max(after.peak, after.now) - before.now)
        self._kept += after.now - before.now
        self.shared += after.shared - before.shared


def copy_seconds(size_bytes: int, rounds: int) -> float:
    """Median time of the slowest rank to copy that many bytes; called by all ranks of the default group at once.

    On one machine an all-reduce is compared with it: that too reads and writes as many bytes on each rank, and all else
    can stay in the processors' caches.
    """
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
