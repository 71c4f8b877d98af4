"""Small all-reduces through dist.all_reduce, one after the other, on several backends in turns; times in microseconds.

    fairring lab --machines 2 --ranks 2 --only-rank 0 -- python benchmarks/calls.py --calls 1000 --sizes 4,4096

"fake" is PyTorch's backend that does nothing: what a call costs in Python and c10d. As benchmarks/cpp/race.h measures:
nothing between the calls but the filling and the checking of the tensor, the time is that of the slowest rank. Rank 0
prints a line of JSON for each size and backend.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import cast

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # registers the backend

from fairring.bench.arithmetic import percentile

FAKE = "fake"
CALLS_OF_BLOCK = 250
WARM_UP = 25
PERIOD = 13  # of the values: small integers, whose sums are exact


def run_block(group: dist.ProcessGroup, elements: int, check: bool) -> tuple[list[float], int]:
    """Seconds of each call on this rank, and how many elements were wrong."""
    ranks = [torch.arange(elements) % PERIOD + rank for rank in range(dist.get_world_size())]
    values, expected = ranks[dist.get_rank()].float(), torch.stack(ranks).sum(0).float()
    tensor = torch.empty(elements)
    seconds, wrong = [], 0
    dist.barrier()
    for call in range(WARM_UP + CALLS_OF_BLOCK):
        tensor.copy_(values)
        begin = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        end = time.perf_counter()
        if check and not torch.equal(tensor, expected):
            wrong += int((tensor != expected).sum())
        if call >= WARM_UP:
            seconds.append(end - begin)
    return seconds, wrong


def measure(size: int, backend: str, seconds: list[float], wrong: int) -> dict[str, object]:
    """A line of the output, from all ranks' figures."""
    slowest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    count = torch.tensor(wrong)
    dist.all_reduce(count)
    times = slowest.tolist()
    return {
        "bytes": size,
        "contender": f"dist.all_reduce, {backend}",
        "calls": len(times),
        "p50_us": round(percentile(times, 50) * 1e6, 2),
        "p99_us": round(percentile(times, 99) * 1e6, 2),
        "wrong": int(count),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Small calls of dist.all_reduce; start it with `fairring lab`.")
    parser.add_argument("--sizes", default="4,64,512,4096", help="bytes of one call's tensor (default %(default)s)")
    parser.add_argument("--calls", type=int, default=1000, help="for each size and backend (default %(default)s)")
    parser.add_argument("--backends", default=f"{FAKE},gloo,fairring", help="default %(default)s")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    # The cast: new_group's other result is for ranks that are no members, and all are.
    groups = {name: cast("dist.ProcessGroup", dist.new_group(backend=name)) for name in arguments.backends.split(",")}
    wrong_at_all = 0
    for size in map(int, arguments.sizes.split(",")):
        seconds: dict[str, list[float]] = {name: [] for name in groups}
        wrong = dict.fromkeys(groups, 0)
        for _ in range(0, arguments.calls, CALLS_OF_BLOCK):
            for name, group in groups.items():
                times, count = run_block(group, size // 4, name != FAKE)
                seconds[name] += times
                wrong[name] += count
        for name in groups:
            row = measure(size, name, seconds[name], wrong[name])
            wrong_at_all += wrong[name]
            if dist.get_rank() == 0:
                print(json.dumps(row), flush=True)
    dist.destroy_process_group()
    return 1 if wrong_at_all else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
