"""Small all-reduces across sites, one after the other: how many one-way trips between the sites each takes.

    fairring lab --machines 4 --ranks 2 --sites 2 --site-delay 20ms --only-rank 0 -- python benchmarks/trips.py

A rank that was called later is waited for, so single calls say little where ranks stand a trip apart; a series of calls
takes as long on all ranks. The trip is half of what a message takes to the last rank, which has to stand in another
site, and back. Rank 0 prints a line of JSON for each size and backend.
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

from fairring.bench.contestants import make_group, parse_contestants

WARM_UP = 3
PINGS = 20


def one_way() -> float:
    """Seconds of the fastest of some trips; meaningful only on rank 0."""
    last, best = dist.get_world_size() - 1, float("inf")
    word = torch.zeros(1)
    for _ in range(PINGS):
        begin = time.perf_counter()
        if dist.get_rank() == 0:
            dist.send(word, last)
            dist.recv(word, last)
        elif dist.get_rank() == last:
            dist.recv(word, 0)
            dist.send(word, 0)
        best = min(best, (time.perf_counter() - begin) / 2)
    return best


def seconds_of_a_call(group: dist.ProcessGroup, elements: int, calls: int) -> float:
    """The mean time of a call in a series; the results are checked."""
    tensor = torch.ones(elements)
    for call in range(WARM_UP + calls):
        if call == WARM_UP:
            begin = time.perf_counter()
        dist.all_reduce(tensor.fill_(1), group=group)
        if not (tensor == dist.get_world_size()).all():
            raise ValueError(f"call {call} of {elements} elements has a wrong sum")
    return (time.perf_counter() - begin) / calls


def main() -> int:
    parser = argparse.ArgumentParser(description="Trips of small calls; start it with `fairring lab --sites 2`.")
    parser.add_argument("--sizes", default="4,4096,65536", help="bytes of one call's tensor (default %(default)s)")
    parser.add_argument("--calls", type=int, default=50, help="of a series (default %(default)s)")
    parser.add_argument("--backends", default="gloo,fairring,fairring[site=one]", help="default %(default)s")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    made = [(one.name, cast("dist.ProcessGroup", make_group(one))) for one in parse_contestants(arguments.backends)]
    trip = one_way()
    for size in map(int, arguments.sizes.split(",")):
        for name, group in made:
            dist.barrier()
            seconds = seconds_of_a_call(group, size // 4, arguments.calls)
            row = {"bytes": size, "backend": name, "ms": round(seconds * 1e3, 3), "trips": round(seconds / trip, 2)}
            if dist.get_rank() == 0:
                print(json.dumps({**row, "trip_ms": round(trip * 1e3, 3)}), flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
