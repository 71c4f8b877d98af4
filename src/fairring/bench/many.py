"""Measures all-reduces of many small tensors: coalesced by torch, listed in one call, and as a loop of async ones.

    fairring bench many --machines 2 --ranks 4 --rate 1gbit --json many.json
    fairring bench many --machines 2 --ranks 2 --rate 1gbit --tensors 300 --sizes 1KiB,100KiB
    torchrun --nnodes 2 ... -m fairring bench many

The tensors take their dtypes in turn, and sizes between two bounds, alike on all ranks. torch lists tensors of one
dtype alone, and Gloo coalesces no others, so there it is as many bytes of the first one. Exit code 1 if any element of
any result was wrong, or if something failed.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fairring.bench import launch
from fairring.bench.contestants import FLOOR, STOCK, Contestant, parse_contestants
from fairring.bench.options import ITEM_BYTES
from fairring.bench.sizes import size_list
from fairring.bench.workload import Report, add_options, listed, print_heading, refuse_less

if TYPE_CHECKING:
    from fairring.bench.job import Job
    from fairring.bench.rows import Row, Sample

HELP = "many small tensors: coalesced, in one call, and as a loop of asynchronous calls"
WAYS = ("coalesced", "listed", "loop")
LARGEST_ITEM = max(ITEM_BYTES.values())
GOLDEN = 0.6180339887498949  # its multiples modulo 1 fill the unit interval evenly, for any number of them


@dataclass(frozen=True)
class Options:
    contestants: list[Contestant]
    dtypes: list[str]
    sizes: list[int]  # bytes of each tensor
    ways: list[str]
    iterations: int
    warm_up: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tensors", type=int, default=1000, metavar="N", help="default: %(default)s")
    add(
        "--sizes", default="4KiB", metavar="SIZE[,SIZE]", help="of all, or the smallest and the largest (default: 4KiB)"
    )
    add("--dtypes", default="float32,bfloat16,int64", metavar="LIST", help="in turn (default: %(default)s)")
    add("--ways", default=",".join(WAYS), metavar="LIST", help="default: %(default)s")
    add_options(parser, f"{STOCK},fairring,{FLOOR}", rounds=(20, 3))


def read(arguments: argparse.Namespace) -> Options:
    """Raises ValueError for options that make no sense."""
    refuse_less(arguments, tensors=1, iterations=1, warmup=0)
    bounds = size_list(arguments.sizes, LARGEST_ITEM)
    if len(bounds) > 2 or bounds != sorted(bounds):
        raise ValueError(f"--sizes {arguments.sizes}: one size, or the smallest and the largest")
    return Options(
        contestants=parse_contestants(arguments.backends),
        dtypes=listed(arguments, "dtypes", tuple(ITEM_BYTES)),
        sizes=spread(bounds[0], bounds[-1], arguments.tensors),
        ways=listed(arguments, "ways", WAYS),
        iterations=arguments.iterations,
        warm_up=arguments.warmup,
    )


def spread(smallest: int, largest: int, count: int) -> list[int]:
    """Sizes in whole elements of any dtype, evenly over the logarithm between the two, in no particular order."""
    ratio = largest / smallest
    exact = [smallest * ratio ** (place * GOLDEN % 1) for place in range(count)]
    return [max(LARGEST_ITEM, int(size) // LARGEST_ITEM * LARGEST_ITEM) for size in exact]


def run(arguments: argparse.Namespace) -> int:
    return launch.run_joined(arguments, read, _measure)


def _measure(arguments: argparse.Namespace, chosen: Options, job: Job) -> int:
    """Returns the exit code, equal on all ranks."""
    from fairring.bench.rows import Cluster, make_rows

    report = Report(arguments, job)
    samples = _race(chosen, job)
    report.measure_links()
    cluster = Cluster(job.ranks_of("machine"), report.link)
    rows = {way: make_rows(of_way, cluster) for way, of_way in samples.items()}
    if job.is_first:
        facts = report.facts(tensors=len(chosen.sizes), bytes=sum(chosen.sizes), dtypes=chosen.dtypes)
        _show(facts, rows)
        written = [
            {"way": way, "vs_floor": vs_floor(row, rows[way]), **asdict(row)} for way in rows for row in rows[way]
        ]
        report.write("many", facts, written)
    return 1 if any(row.wrong for of_way in rows.values() for row in of_way) else 0


def _race(chosen: Options, job: Job) -> dict[str, list[Sample]]:
    """The samples, by way."""
    from fairring.bench.many_calls import runners
    from fairring.bench.progress import reporting
    from fairring.bench.race import Racer, race

    racers = [Racer(contestant) for contestant in chosen.contestants]
    samples: dict[str, list[Sample]] = {}
    with reporting(job.is_first, len(chosen.ways) * (chosen.warm_up + chosen.iterations)) as report:
        for way in chosen.ways:
            report.now(way)
            taking_turns = runners(chosen.sizes, chosen.dtypes, way, racers)
            samples[way] = race(taking_turns, chosen.warm_up, chosen.iterations, report.advance)
    return samples


def vs_floor(row: Row, rows: list[Row]) -> float | None:
    """Its time in units of the least possible time: the network's or c10d's own, whichever is longer."""
    floor = next((other.median for other in rows if other.backend == FLOOR), None)
    if floor is None or row.backend == FLOOR:
        return None
    return row.median / max(floor, (row.of_limit or 0.0) * row.median)


def _show(facts: dict[str, Any], rows: dict[str, list[Row]]) -> None:
    from fairring.bench.table import COSTS, TIMES, amount, make_table, number
    from fairring.table import show

    print_heading(facts, f"{facts['tensors']} tensors of {', '.join(facts['dtypes'])}, {amount(facts['bytes'])}")
    for way, of_way in rows.items():
        floor = ("vs floor", lambda row, of_way=of_way: number(vs_floor(row, of_way), ".2f"))
        show(make_table((*TIMES, floor), of_way), f"{way}: time of the slowest rank")
        show(make_table(COSTS[:-2], of_way), f"{way}: cost of one go, busiest rank (CPU: all ranks)")
