"""Reduce-scatters, all-gathers and barriers on Fairring and on Gloo, in turns, over the same links.

Run in each rank of a job, as in

    fairring lab --machines 2 --ranks 2 --rate 1gbit --only-rank 0 -- python benchmarks/halves.py --mib 25 --rounds 10

Prints milliseconds of the slowest rank: the median, the least and the most of the rounds, after two that are not
counted, and how many results were wrong. The limit that a link of so many Gbit/s sets is N(M-1)/M bytes at its rate.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import fairring  # noqa: F401  registers the backend on torch before 2.15

UNCOUNTED = 2


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=float, default=25, help="MiB of fp32 of all ranks' blocks together")
    parser.add_argument("--rounds", type=int, default=10)
    return parser.parse_args()


def main() -> None:
    chosen = options()
    dist.init_process_group("fairring")
    ranks, rank = dist.get_world_size(), dist.get_rank()
    groups = {"fairring": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    elements = max(1, int(chosen.mib * (1 << 20)) // 4 // ranks)
    block, whole = torch.full((elements,), float(rank)), torch.ones(elements * ranks)
    gathered, scattered = torch.empty(elements * ranks), torch.empty(elements)
    calls: dict[str, tuple[Callable[[dist.ProcessGroup], object], Callable[[], bool]]] = {
        "all_gather_into_tensor": (
            lambda group: dist.all_gather_into_tensor(gathered, block, group=group),
            lambda: bool((gathered == torch.arange(ranks).repeat_interleave(elements)).all()),
        ),
        "reduce_scatter_tensor": (
            lambda group: dist.reduce_scatter_tensor(scattered, whole, group=group),
            lambda: bool((scattered == ranks).all()),
        ),
        "barrier": (lambda group: dist.barrier(group=group), lambda: True),
    }
    for name, (call, is_right) in calls.items():
        times: dict[str, list[float]] = {backend: [] for backend in groups}
        wrong = 0
        for turn in range(UNCOUNTED + chosen.rounds):
            for backend, group in groups.items():
                dist.barrier(group=groups["gloo"])
                begun = time.perf_counter()
                call(group)
                spent = torch.tensor([time.perf_counter() - begun])
                wrong += not is_right()
                dist.all_reduce(spent, op=dist.ReduceOp.MAX, group=groups["gloo"])
                if turn >= UNCOUNTED:
                    times[backend].append(spent.item() * 1e3)
        if rank == 0:
            medians = {backend: statistics.median(taken) for backend, taken in times.items()}
            shown = ", ".join(
                f"{backend} {medians[backend]:.3g} ms ({min(taken):.3g} to {max(taken):.3g})"
                for backend, taken in times.items()
            )
            ratio = medians["gloo"] / medians["fairring"]
            print(f"{name}, {ranks} ranks, {chosen.mib} MiB: {shown}, {ratio:.2f}x gloo, wrong {wrong}", flush=True)
    dist.destroy_process_group()


main()
