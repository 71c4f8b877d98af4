"""Collectives on Fairring and on Gloo, in turns, over the same links.

Run in each rank of a job, as in

    fairring lab --machines 2 --ranks 2 --rate 1gbit --only-rank 0 -- \
        python benchmarks/collectives.py --machines 2 --mbyte-per-second 119.5 --sizes 4B,4KiB,25MiB --rounds 10

Prints milliseconds of the slowest rank: the median, the least and the most of the rounds, after two that are not
counted, what the links' rate allows, what the busiest link carried by its interface's own counters, headers included,
and how many results were wrong. Up to 64 KiB a round is a row of 40 blocking calls, and its time is divided by 40: one
small call alone takes less than the ranks need to wake up beside each other.

The size is what each rank's tensor for the whole has: the output of all_gather, the input of reduce_scatter and
all_to_all, what the root of gather and scatter has, the tensor of broadcast and reduce. Below one element for each rank
it is one element for each rank. The pair of send and recv plays ping-pong between rank 0 and the last rank.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import interfaces
import torch
import torch.distributed as dist

import fairring  # noqa: F401  registers the backend on torch before 2.15
from fairring.bench.sizes import format_size, size_list

UNCOUNTED = 2
SMALL_BYTES, CALLS_IN_A_ROW = 1 << 16, 40


@dataclass
class Collective:
    call: Callable[[dist.ProcessGroup], object]
    is_right: Callable[[], bool]
    link_bytes: float = 0  # that have to cross the busiest machine's link, in its busier direction
    trips: int = 1  # that follow one another


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", type=int, required=True, help="of as many ranks each")
    parser.add_argument("--mbyte-per-second", type=float, default=119.5, help="of a machine's link, each way")
    parser.add_argument("--sizes", default="25MiB", help="with commas")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", help="some of the names, with commas")
    parser.add_argument("--json", help="file to write the rows to as well")
    return parser.parse_args()


def collectives(machines: int, size_bytes: int) -> dict[str, Collective]:
    ranks, rank = dist.get_world_size(), dist.get_rank()
    elements = max(1, size_bytes // 4 // ranks)
    everyone = torch.arange(float(ranks))
    block, whole = torch.full((elements,), float(rank)), torch.ones(elements * ranks)
    stacked, part = torch.empty(elements * ranks), torch.empty(elements)
    everything = everyone.repeat_interleave(elements)
    list_of_all = list(stacked.chunk(ranks)) if rank == 0 else None
    across, size = (machines - 1) / machines, 4 * elements * ranks

    def broadcast(group: dist.ProcessGroup) -> object:
        stacked.fill_(float(rank + 1))
        return dist.broadcast(stacked, 0, group=group)

    def reduce(group: dist.ProcessGroup) -> object:
        stacked.fill_(1.0)
        return dist.reduce(stacked, 0, group=group)

    def ping_pong(group: dist.ProcessGroup) -> object:
        first, last = 0, ranks - 1
        if rank == first:
            dist.send(everything, last, group=group)
            return dist.recv(stacked, last, group=group)
        if rank == last:
            dist.recv(stacked, first, group=group)
            return dist.send(stacked, first, group=group)
        return None

    return {
        "all_gather_into_tensor": Collective(
            lambda group: dist.all_gather_into_tensor(stacked, block, group=group),
            lambda: torch.equal(stacked, everything),
            size * across,
        ),
        "reduce_scatter_tensor": Collective(
            lambda group: dist.reduce_scatter_tensor(part, whole, group=group),
            lambda: bool((part == ranks).all()),
            size * across,
        ),
        "broadcast": Collective(broadcast, lambda: bool((stacked == 1).all()), size * (machines > 1)),
        "reduce": Collective(reduce, lambda: rank != 0 or bool((stacked == ranks).all()), size * (machines > 1)),
        "gather": Collective(
            lambda group: dist.gather(block, list_of_all, 0, group=group),
            lambda: rank != 0 or torch.equal(stacked, everything),
            size * across,
        ),
        "scatter": Collective(
            lambda group: dist.scatter(part, list(everything.chunk(ranks)) if rank == 0 else None, 0, group=group),
            lambda: bool((part == rank).all()),
            size * across,
        ),
        "all_to_all_single": Collective(
            lambda group: dist.all_to_all_single(stacked, everything, group=group),
            lambda: bool((stacked == rank).all()),
            size * across * ranks / machines,
        ),
        "send and recv": Collective(
            ping_pong,
            lambda: rank not in (0, ranks - 1) or torch.equal(stacked, everything),
            size * (machines > 1),
            trips=2,
        ),
        "barrier": Collective(lambda group: dist.barrier(group=group), lambda: True),
    }


def time_of_a_call(collective: Collective, group: dist.ProcessGroup, calls: int) -> float:
    begun = time.perf_counter()
    for _ in range(calls):
        collective.call(group)
    return (time.perf_counter() - begun) / calls


def on_links() -> torch.Tensor:
    """Bytes that this machine's links have brought and taken; in the lab each machine has its own."""
    return torch.tensor([counts for name, counts in interfaces.carried().items() if name != "lo"]).sum(0)


def measure(
    collective: Collective, groups: dict[str, dist.ProcessGroup], calls: int, rounds: int
) -> tuple[dict[str, list[float]], dict[str, float], int]:
    """By backend: milliseconds of the slowest rank, one for each round, and bytes that a call brings over the busiest
    link, in its busier direction. And how many results were wrong on this rank."""
    times: dict[str, list[float]] = {backend: [] for backend in groups}
    on_link = {backend: torch.zeros(2, dtype=torch.int64) for backend in groups}
    wrong = 0
    for turn in range(UNCOUNTED + rounds):
        for backend, group in groups.items():
            dist.barrier(group=groups["gloo"])
            before = on_links()
            spent = torch.tensor([time_of_a_call(collective, group, calls)])
            wrong += not collective.is_right()
            dist.all_reduce(spent, op=dist.ReduceOp.MAX, group=groups["gloo"])
            if turn >= UNCOUNTED:
                times[backend].append(spent.item() * 1e3)
                on_link[backend] += on_links() - before
    for total in on_link.values():
        dist.all_reduce(total, op=dist.ReduceOp.MAX, group=groups["gloo"])
    busiest = {backend: total.max().item() / (rounds * calls) for backend, total in on_link.items()}
    return times, busiest, wrong


def main() -> None:
    chosen = options()
    dist.init_process_group("fairring")
    groups = {"fairring": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    rows = []
    for size in size_list(chosen.sizes, item_bytes=4):
        calls = CALLS_IN_A_ROW if size <= SMALL_BYTES else 1
        for name, collective in collectives(chosen.machines, size).items():
            if chosen.only and name not in chosen.only.split(","):
                continue
            times, on_link, wrong = measure(collective, groups, calls, chosen.rounds)
            mistakes = torch.tensor([wrong])
            dist.all_reduce(mistakes, group=groups["gloo"])
            limit = collective.trips * collective.link_bytes / chosen.mbyte_per_second / 1e3
            row = {"collective": name, "bytes": size, "limit_ms": limit, "ms": times, "wrong": int(mistakes)}
            row |= {"link_bytes": collective.link_bytes, "on_link": on_link}
            rows.append(row)
            if dist.get_rank() == 0:
                print(described(row), flush=True)
    if dist.get_rank() == 0 and chosen.json:
        Path(chosen.json).write_text(json.dumps(rows, indent=1))
    dist.destroy_process_group()


def described(row: dict[str, Any]) -> str:
    medians = {backend: statistics.median(taken) for backend, taken in row["ms"].items()}
    shown = ", ".join(
        f"{backend} {medians[backend]:.3g} ms ({min(taken):.3g} to {max(taken):.3g})"
        for backend, taken in row["ms"].items()
    )
    carried_more = row["on_link"]["fairring"] / row["link_bytes"] if row["link_bytes"] else float("nan")
    return (
        f"{row['collective']}, {dist.get_world_size()} ranks, {format_size(row['bytes'])}: {shown}, "
        f"{medians['gloo'] / medians['fairring']:.2f}x gloo, limit {row['limit_ms']:.3g} ms, "
        f"of_limit {row['limit_ms'] / medians['fairring']:.2f}, bytes on the link {carried_more:.3f} of the least, "
        f"wrong {row['wrong']}"
    )


main()
