"""Measures what making a group takes: init_process_group and the first all-reduce, on gloo and on fairring, in turns.

    fairring bench init --machines 2 --ranks 4 --rate 1gbit
    fairring bench init                                  8 ranks on this machine
    torchrun --nnodes 2 ... -m fairring bench init

All groups meet on one store, so the time of making that is not in it. Fairring connects at a group's first use, Gloo
when the group is made: look at both together. Exit code 1 if something failed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from fairring.bench import launch, results
from fairring.bench.contestants import STOCK, Contestant, parse_contestants
from fairring.bench.launch import add_options, refuse_less

HELP = "init_process_group and the first all-reduce"
BACKENDS = f"{STOCK},fairring"
PARTS = ("init", "first", "both")  # and the first all-reduce
FIRST_BYTES = 4


@dataclass(frozen=True)
class Row:
    """Seconds of the slowest rank, by part, one per round; medians, deviations and ratios to gloo's medians by part."""

    backend: str
    seconds: dict[str, list[float]]
    median: dict[str, float]
    deviation: dict[str, float]
    vs_stock: dict[str, float | None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, BACKENDS, rounds=(7, 1), ranks="8")


def run(arguments: argparse.Namespace) -> int:
    return launch.run(arguments, _read, _measure)


def _read(arguments: argparse.Namespace) -> list[Contestant]:
    refuse_less(arguments, iterations=1, warmup=0)
    return parse_contestants(arguments.backends)


def _measure(arguments: argparse.Namespace, contestants: list[Contestant]) -> int:
    import torch.distributed as dist

    from fairring.bench.contestants import make_known
    from fairring.bench.job import joined
    from fairring.bench.placement import Placement
    from fairring.bench.progress import reporting
    from fairring.bench.report import conditions, here

    place = Placement.from_environment()
    store, _, _ = next(dist.rendezvous("env://"))  # of torchrun's agent if that holds one
    for contestant in contestants:
        make_known(contestant)
    rounds = arguments.warmup + arguments.iterations
    mine: dict[str, list[tuple[float, float]]] = {one.name: [] for one in contestants}
    with reporting(place.rank == 0, rounds) as report:
        report.now("groups")
        for turn in range(rounds):
            for number, contestant in enumerate(contestants):
                meeting = dist.PrefixStore(f"{turn}/{number}", store)
                taken = _make(contestant, place, meeting)
                if turn >= arguments.warmup:
                    mine[contestant.name].append(taken)
            report.advance()
    with joined(dist.PrefixStore("report", store)) as job:
        of_all = [mine] * place.world
        dist.all_gather_object(of_all, mine)
        if job.is_first:
            rows = make_rows(of_all)
            facts = conditions(arguments, job.places, [here()])
            _show(facts, rows)
            results.write(arguments.json, "init", facts, [asdict(row) for row in rows])
    return 0


def _make(contestant: Contestant, place: Any, store: Any) -> tuple[float, float]:
    """Seconds of init_process_group and of the first all-reduce on this rank."""
    import torch
    import torch.distributed as dist

    from fairring.bench.contestants import settings_of

    tensor = torch.ones(FIRST_BYTES // 4)
    _meet(store, "begin", place.world)
    with settings_of(contestant):
        begin = time.perf_counter()
        dist.init_process_group(contestant.backend, store=store, rank=place.rank, world_size=place.world)
    made = time.perf_counter()
    dist.all_reduce(tensor)
    done = time.perf_counter()
    dist.destroy_process_group()
    if contestant.sums and tensor.item() != place.world:
        raise RuntimeError(f"the first all-reduce on {contestant.name} is {tensor.item()}, not {place.world}")
    return made - begin, done - made


def _meet(store: Any, key: str, world: int) -> None:
    """Returns when all ranks have come to this point."""
    if store.add(f"{key}/came", 1) == world:
        store.set(f"{key}/all", "")
    store.wait([f"{key}/all"])


def make_rows(seconds: list[dict[str, list[tuple[float, float]]]]) -> list[Row]:
    """seconds: of each rank, by backend, for init and first all-reduce. A part takes as long as on its slowest rank."""
    from fairring.bench.arithmetic import median_deviation, percentile

    slowest: dict[str, dict[str, list[float]]] = {}
    for name in seconds[0]:
        turns = list(zip(*(of_rank[name] for of_rank in seconds), strict=True))
        slowest[name] = {
            "init": [max(init for init, _ in turn) for turn in turns],
            "first": [max(first for _, first in turn) for turn in turns],
            "both": [max(init + first for init, first in turn) for turn in turns],
        }
    medians = {name: {part: percentile(times[part], 50) for part in PARTS} for name, times in slowest.items()}
    stock = medians.get(STOCK)
    return [
        Row(
            backend=name,
            seconds=times,
            median=medians[name],
            deviation={part: median_deviation(times[part]) for part in PARTS},
            vs_stock={part: stock[part] / medians[name][part] if stock else None for part in PARTS},
        )
        for name, times in slowest.items()
    ]


def _show(facts: dict[str, Any], rows: list[Row]) -> None:
    from fairring.bench.report import heading
    from fairring.bench.table import BACKEND, factor, make_table
    from fairring.table import show

    def part(head: str, name: str) -> tuple[str, Callable[[Row], str]]:
        return f"{head}\nms", lambda row: f"{row.median[name] * 1e3:.1f} ± {row.deviation[name] * 1e3:.1f}"

    print(*heading(facts), sep="\n")
    columns = (
        ("groups", lambda row: str(len(row.seconds["init"]))),
        BACKEND,
        part("init", "init"),
        part("first all-reduce", "first"),
        part("both", "both"),
        ("both, vs gloo", lambda row: factor(row.vs_stock["both"])),
    )
    show(make_table(columns, rows), "Making a group, slowest rank: median ± MAD")
