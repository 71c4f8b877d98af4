"""Measures steps of data-parallel training: what a step takes with gloo and with fairring, and what without either.

    fairring bench ddp --machines 2 --ranks 2 --rate 1gbit --json ddp.json
    torchrun --nnodes 2 ... -m fairring bench ddp

A transformer on random bytes, by default of the demo's shape, in DistributedDataParallel. Each round trains one step on
every backend and one in which DDP exchanges nothing; the communication part of a step is what it takes longer than
that. Exit code 1 if something failed, or if ranks end with different parameters.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fairring.bench import launch
from fairring.bench.contestants import ALONE, STOCK, Contestant, parse_contestants
from fairring.bench.workload import Report, add_options, print_heading, refuse_less

if TYPE_CHECKING:
    from fairring.bench.job import Job

HELP = "steps of data-parallel training, and the communication part of them"
BACKENDS = f"{STOCK},fairring"


@dataclass(frozen=True)
class Row:
    """Times in seconds. communication: the median of the rounds' differences to the step that exchanges nothing."""

    backend: str
    seconds: list[float]  # of the slowest rank, one per round
    median: float
    deviation: float
    p99: float
    communication: float | None
    communication_deviation: float | None
    vs_stock: float | None
    communication_vs_stock: float | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--width", type=int, default=384, help="of the model; it needs width² memory (default: %(default)s)")
    add("--layers", type=int, default=6, help="of the model (default: %(default)s)")
    add("--batch", type=int, default=2, help="sequences of 64 bytes per rank and step (default: %(default)s)")
    add("--bucket-mib", type=float, default=25, metavar="N", help="DDP's bucket_cap_mb (default: %(default)s)")
    add_options(parser, BACKENDS, rounds=(20, 3))


def run(arguments: argparse.Namespace) -> int:
    return launch.run_joined(arguments, _read, _measure)


def _read(arguments: argparse.Namespace) -> list[Contestant]:
    refuse_less(arguments, iterations=1, warmup=0, layers=1, batch=1, width=64)
    if not arguments.bucket_mib > 0:
        raise ValueError(f"--bucket-mib {arguments.bucket_mib:g}: more than nothing")
    if arguments.width % 64:
        raise ValueError(f"--width {arguments.width}: a multiple of 64, the width of an attention head")
    contestants = parse_contestants(arguments.backends)
    if not all(one.sums for one in contestants):
        raise ValueError(f"--backends {arguments.backends}: the step that exchanges nothing is measured anyway")
    return contestants


def _measure(arguments: argparse.Namespace, contestants: list[Contestant], job: Job) -> int:
    from fairring.bench.progress import reporting
    from fairring.bench.training import Shape, different_ranks, train

    shape = Shape(arguments.width, arguments.layers, arguments.batch, arguments.bucket_mib)
    written = Report(arguments, job)
    with reporting(job.is_first, arguments.warmup + arguments.iterations) as report:
        report.now("steps")
        trainings = train(contestants, shape, arguments.warmup, arguments.iterations, report.advance)
    written.measure_links()
    differing = [one.name for one in contestants if different_ranks(trainings[one.name].replica)]
    rows = make_rows({name: training.seconds for name, training in trainings.items()})
    if job.is_first:
        facts = written.facts(shape=asdict(shape), gradient_bytes=trainings[ALONE].gradient_bytes)
        _show(facts, rows)
        written.write("ddp", facts, [asdict(row) for row in rows])
        for name in differing:
            print(f"fairring bench: ranks end with different parameters on {name}", file=sys.stderr)
    return 1 if differing else 0


def make_rows(seconds: dict[str, list[float]]) -> list[Row]:
    """seconds: by backend, one per round, with ALONE among them."""
    from fairring.bench.arithmetic import median_deviation, percentile

    parts = {
        name: [with_it - without for with_it, without in zip(times, seconds[ALONE], strict=True)]
        for name, times in seconds.items()
        if name != ALONE
    }
    medians = {name: percentile(times, 50) for name, times in seconds.items()}
    exchanges = {name: percentile(part, 50) for name, part in parts.items()}

    def ratio(values: dict[str, float], name: str) -> float | None:
        return values[STOCK] / values[name] if STOCK in values and values.get(name, 0.0) > 0 else None

    return [
        Row(
            backend=name,
            seconds=times,
            median=medians[name],
            deviation=median_deviation(times),
            p99=percentile(times, 99),
            communication=exchanges.get(name),
            communication_deviation=median_deviation(parts[name]) if name in parts else None,
            vs_stock=ratio(medians, name),
            communication_vs_stock=ratio(exchanges, name),
        )
        for name, times in seconds.items()
    ]


def _show(facts: dict[str, Any], rows: list[Row]) -> None:
    from fairring.bench.table import BACKEND, figure, make_table, ratio
    from fairring.table import show

    print_heading(facts, f"{facts['gradient_bytes'] / 1e6:.1f} MB of gradients a step")
    columns = (
        ("steps", lambda row: str(len(row.seconds))),
        BACKEND,
        figure("median\nms", "median", ".1f", 1e3),
        figure("± MAD\nms", "deviation", ".1f", 1e3),
        figure("p99\nms", "p99", ".1f", 1e3),
        figure("exchange\nms", "communication", ".1f", 1e3),
        figure("± MAD\nms", "communication_deviation", ".1f", 1e3),
        ratio("vs gloo", "vs_stock"),
        ratio("exchange\nvs gloo", "communication_vs_stock"),
    )
    show(make_table(columns, rows), "A step on the slowest rank")
