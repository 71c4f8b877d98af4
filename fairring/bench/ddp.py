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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairring.bench import launch, results
from fairring.bench.contestants import STOCK, Contestant, parse_contestants

if TYPE_CHECKING:
    from fairring.bench.job import Job

HELP = "steps of data-parallel training, and the communication part of them"
BACKENDS = f"{STOCK},fairring"
ALONE = "no exchange"  # a row of its own


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
    text = "in the order of their turns; fairring[lanes=2] sets FAIRRING_LANES for that one (default: %(default)s)"
    add("--backends", default=BACKENDS, metavar="LIST", help=text)
    add("--iterations", type=int, default=20, metavar="N", help="timed steps of each (default: %(default)s)")
    add("--warmup", type=int, default=3, metavar="N", help="untimed ones before (default: %(default)s)")
    add("--width", type=int, default=384, help="of the model; it needs width² memory (default: %(default)s)")
    add("--layers", type=int, default=6, help="of the model (default: %(default)s)")
    add("--batch", type=int, default=2, help="sequences of 64 bytes per rank and step (default: %(default)s)")
    add("--bucket-mib", type=float, default=25, metavar="N", help="DDP's bucket_cap_mb (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="for the conditions, the rows and all samples")
    launch.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    return launch.run_joined(arguments, _read, _measure)


def _read(arguments: argparse.Namespace) -> list[Contestant]:
    for name, least in (("iterations", 1), ("warmup", 0), ("layers", 1), ("batch", 1), ("width", 64)):
        if getattr(arguments, name) < least:
            raise ValueError(f"--{name} {getattr(arguments, name)}: at least {least}")
    if not arguments.bucket_mib > 0:
        raise ValueError(f"--bucket-mib {arguments.bucket_mib:g}: more than nothing")
    if arguments.width % 64:
        raise ValueError(f"--width {arguments.width}: a multiple of 64, the width of an attention head")
    contestants = parse_contestants(arguments.backends)
    if not all(one.sums for one in contestants):
        raise ValueError(f"--backends {arguments.backends}: the step that exchanges nothing is measured anyway")
    return contestants


def _measure(arguments: argparse.Namespace, contestants: list[Contestant], job: Job) -> int:
    from fairring.bench import conditions
    from fairring.bench.progress import reporting
    from fairring.bench.training import Shape, different_ranks, train

    shape = Shape(arguments.width, arguments.layers, arguments.batch, arguments.bucket_mib)
    link, site_link = job.measure_link(), job.measure_site_link()
    with reporting(job.is_first, arguments.warmup + arguments.iterations) as report:
        report.now("steps")
        trainings = train(contestants, shape, arguments.warmup, arguments.iterations, report.advance)
    differing = [one.name for one in contestants if different_ranks(trainings[one.name].replica)]
    rows = make_rows({name: training.seconds for name, training in trainings.items()})
    if job.is_first:
        facts = conditions.conditions(arguments, job.places, [conditions.here()])
        facts |= {"shape": asdict(shape), "gradient_bytes": trainings[ALONE].gradient_bytes}
        facts["link_bytes_per_second"] = [asdict(link)] if link else []
        facts["site_link_bytes_per_second"] = [asdict(site_link)] if site_link else []
        _show(facts, rows)
        results.write(arguments.json, "ddp", facts, [asdict(row) for row in rows])
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
    from fairring.bench.conditions import heading
    from fairring.bench.table import console, number, plain_table

    out = console()
    for line in heading(facts):
        out.print(line, markup=False, soft_wrap=True)
    ends = (("link", "machine", "link_bytes_per_second"), ("between sites", "site", "site_link_bytes_per_second"))
    speeds = [
        f"{name}: {min(link['sent'] + link['received']) / 1e9:.4f} GB/s per {end} and direction"
        for name, end, fact in ends
        for link in facts[fact]
    ]
    network = "; ".join(speeds) or "no network between"
    out.print(f"{facts['gradient_bytes'] / 1e6:.1f} MB of gradients a step; {network}", soft_wrap=True)
    times = ("median\nms", "± MAD\nms", "p99\nms", "exchange\nms", "± MAD\nms")
    table = plain_table("A step on the slowest rank", ("steps", "backend", *times, "vs gloo", "exchange\nvs gloo"))
    for row in rows:
        figures = (row.median, row.deviation, row.p99, row.communication, row.communication_deviation)
        ratios = (row.vs_stock, row.communication_vs_stock)
        table.add_row(
            str(len(row.seconds)),
            row.backend.replace("[", r"\["),
            *(number(figure, ".1f", 1e3) for figure in figures),
            *("-" if ratio is None else f"{ratio:.2f}x" for ratio in ratios),
        )
    out.print(table)
