"""Measures a collective on gloo, on fairring and on a backend that does nothing, in turns, beside the network's speed.

    fairring bench all-reduce --machines 2 --ranks 4 --rate 1gbit -b 4 -e 64MiB -f 8 --json out.json
    torchrun --nnodes 2 ... -m fairring bench all-gather --sizes 64KiB,25MiB

A size is that of the tensor that stands for all ranks, as nccl-tests have it, in bytes or with a unit: KiB, MiB, GiB
(powers of 1024), KB, MB, GB. The tables go to stdout, progress to stderr. docs/bench.md says what the columns mean.
Exit code 1 if any element of any result was wrong, or if something failed.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fairring.bench import launch, options
from fairring.bench.collectives import ALL_REDUCE, BARRIER, COLLECTIVES
from fairring.bench.workload import Report, print_heading

if TYPE_CHECKING:
    from fairring.bench.calls import Course
    from fairring.bench.job import Job
    from fairring.bench.progress import Reporter
    from fairring.bench.race import Racer
    from fairring.bench.rows import Cluster, Row, Sample

HELP = "by size: time, bandwidth, share of the network's limit, cost"

add_arguments = options.add_arguments


def run(arguments: argparse.Namespace) -> int:
    return launch.run_joined(arguments, options.read, _measure)


def _measure(arguments: argparse.Namespace, chosen: options.Options, job: Job) -> int:
    """Returns the exit code, equal on all ranks."""
    from fairring.bench import conditions
    from fairring.bench.progress import reporting
    from fairring.bench.race import Racer
    from fairring.bench.rows import make_rows

    written = Report(arguments, job)
    racers = [Racer(contestant) for contestant in chosen.contestants]
    courses = _courses(chosen, job.place.world)
    rounds = sum(course.warm_up + course.rounds for course in courses)
    with reporting(job.is_first, rounds) as report:
        measured = [_run(course, racers, report) for course in courses]
    written.measure_links()
    cluster = _cluster(job, written, courses)
    collective = COLLECTIVES[chosen.collective]
    rows = [row for samples in measured for row in make_rows(samples, cluster, collective)]
    if job.is_first:
        facts = written.facts(
            copy_seconds=cluster.copy_seconds,
            dtype=chosen.dtype,
            op=chosen.op if collective.reduces else None,
            in_flight=chosen.in_flight,
            sweep=arguments.sweep,
            load_afterwards=conditions.here()["load"],
        )
        _show(chosen.collective, facts, rows)
        written.write(chosen.collective, facts, [asdict(row) for row in rows])
    return 1 if any(row.wrong for row in rows) else 0


def _courses(chosen: options.Options, world: int) -> list[Course]:
    import torch

    from fairring.bench.calls import Course

    return [
        Course(
            chosen.collective,
            size,
            getattr(torch, chosen.dtype),
            chosen.op,
            chosen.in_flight,
            *chosen.rounds(size),
            chosen.check,
            chosen.goes_in_a_row(size),
        )
        for size in dict.fromkeys(_in_blocks(size, chosen, world) for size in chosen.sizes)
    ]


def _in_blocks(size_bytes: int, chosen: options.Options, world: int) -> int:
    """Rounded to whole elements of every rank's block, at least one."""
    if not COLLECTIVES[chosen.collective].blockwise:
        return size_bytes
    step = options.ITEM_BYTES[chosen.dtype] * world
    return max(step, size_bytes // step * step)


def _run(course: Course, racers: list[Racer], report: Reporter) -> list[Sample]:
    from fairring.bench.arithmetic import percentile
    from fairring.bench.calls import runners
    from fairring.bench.race import race
    from fairring.bench.sizes import format_size

    size = format_size(course.size_bytes)
    report.now(size)
    samples = race(runners(course, racers), course.warm_up, course.rounds, report.advance)
    if course.collective == ALL_REDUCE:
        for racer, sample in zip(racers, samples, strict=True):
            sample.plan = racer.plan(course.size_bytes)
    medians = (f"{one.name} {percentile(one.seconds, 50) * 1e3:.3f} ms" for one in samples)
    report.done(f"{size}: {', '.join(medians)}")
    return samples


def _cluster(job: Job, report: Report, courses: list[Course]) -> Cluster:
    from fairring.bench.memory_speed import copy_seconds
    from fairring.bench.rows import Cluster

    fills = COLLECTIVES[courses[0].collective].fills and not report.link
    together = [(course.size_bytes * course.in_flight, course.rounds) for course in courses if fills]
    copying = {size_bytes: copy_seconds(size_bytes, rounds) for size_bytes, rounds in together}
    return Cluster(job.ranks_of("machine"), report.link, copying, job.ranks_of("site"), report.site_link)


def _show(collective: str, facts: dict[str, Any], rows: list[Row]) -> None:
    from fairring.bench.table import COSTS, TIMES, make_table
    from fairring.table import show

    op = f" ({facts['op']})" if facts["op"] else ""
    dtype = "" if collective == BARRIER else f" of {facts['dtype']}"
    print_heading(facts, f"{collective}{op}{dtype}, {facts['in_flight']} in flight")
    show(make_table(TIMES, rows), "Time of the slowest rank")
    show(make_table(COSTS, rows), "Cost of one go, busiest rank (CPU: all ranks)")
