"""One rank of a trial: sums tensors with the other one and compares: `-m fairring.check.trial RANK FILE SECONDS`

FILE: where the two meet, so that the trial needs no port of its own and no name.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from fairring.check.child import START_SECONDS
from fairring.check.trials import RANKS

ELEMENTS = (1, 1000, (4 << 20) + 3)  # the last: more than one shard, and not a multiple of any block
MOST_VALUE = 1 << 10  # sums of such integers are exact in fp32


def main() -> None:
    rank, file, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    timeout = timedelta(seconds=seconds)
    dist.init_process_group("fairring", store=met(rank, file), timeout=timeout, rank=rank, world_size=RANKS)
    begin = time.perf_counter()
    wrong = sum(wrong_elements(rank, elements) for elements in ELEMENTS)
    took = time.perf_counter() - begin
    dist.destroy_process_group()
    print(json.dumps({"wrong": wrong, "elements": sum(ELEMENTS), "seconds": took}))


def met(rank: int, file: str) -> dist.Store:
    """The store, once both ranks have imported torch: the group's time is not for that."""
    store = dist.FileStore(file, RANKS)
    store.set(f"rank {rank} is here", "")
    store.wait([f"rank {one} is here" for one in range(RANKS)], timedelta(seconds=START_SECONDS))
    return store


def wrong_elements(rank: int, elements: int) -> int:
    """The number of elements of one all-reduce that differ from the sum of the ranks' values."""
    values = torch.arange(elements, dtype=torch.float32) % MOST_VALUE
    tensor = values * (rank + 1)
    dist.all_reduce(tensor)
    return int((tensor != values * sum(range(1, RANKS + 1))).sum())


if __name__ == "__main__":
    main()
