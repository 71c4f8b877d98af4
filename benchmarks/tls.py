"""Measures all-reduce over plain connections and under TLS, in turns, in one run: time, and processor time.

    fairring lab --machines 2 --ranks 1 --rate 1gbit --only-rank 0 -- python benchmarks/tls.py

Wants FAIRRING_TLS=on and its three files in the environment. Processor time is that of all threads of all ranks, in
seconds per GB of tensor, over the calls of one row in a stretch. Exit code 1 if an element of any result was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from metrics import percentile
from race import Course, race
from sizes import format_size, parse_size

from fairring.config import PREFIX

STRETCH_BYTES = 1 << 30  # of calls whose processor time is taken; at most so many calls:
MOST_CALLS = 2000


@contextmanager
def without_tls() -> Iterator[None]:
    names = [name for name in os.environ if name.startswith(f"{PREFIX}TLS")]
    kept = {name: os.environ.pop(name) for name in names}
    yield
    os.environ.update(kept)


def new_group() -> dist.ProcessGroup:
    group = dist.new_group(backend="fairring")
    assert isinstance(group, dist.ProcessGroup)
    return group


def processor_seconds(size_bytes: int, group: dist.ProcessGroup) -> float:
    """Of all ranks, per GB of tensor."""
    tensor = torch.zeros(size_bytes // 4)
    calls = max(1, min(MOST_CALLS, STRETCH_BYTES // size_bytes))
    dist.all_reduce(tensor, group=group)
    dist.barrier()
    begin = time.process_time()
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)
    seconds = torch.tensor(time.process_time() - begin, dtype=torch.float64)
    dist.all_reduce(seconds)
    return float(seconds) / (calls * size_bytes / 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="4KiB,25MiB")
    parser.add_argument("--rounds", type=int, default=50)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    with without_tls():
        plain = new_group()
    groups = {"plain": plain, "TLS": new_group()}
    wrong = 0
    for size in map(parse_size, arguments.sizes.split(",")):
        scores = race(Course(size, torch.float32, "sum", 1, arguments.rounds, 5), groups, lambda: None)
        for name, group in groups.items():
            times = scores[name].seconds
            processor = processor_seconds(size, group)
            wrong += scores[name].wrong
            if dist.get_rank() == 0:
                print(
                    f"{format_size(size):>8} {name:>6} p50 {percentile(times, 50) * 1e3:9.3f} ms "
                    f"best {min(times) * 1e3:9.3f} ms {size / percentile(times, 50) / 1e6:8.1f} MB/s "
                    f"processor {processor:7.2f} s/GB wrong {scores[name].wrong}",
                    flush=True,
                )
    dist.destroy_process_group()
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
