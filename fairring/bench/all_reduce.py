"""Measures all-reduce on gloo, on fairring and on a backend that does nothing, in turns, beside the network's speed.

    fairring bench all-reduce --machines 2 --ranks 4 --rate 1gbit -b 4 -e 64MiB -f 8 --json out.json
    torchrun --nnodes 2 ... -m fairring bench all-reduce --sizes 64KiB,25MiB

Sizes are bytes or carry a unit: KiB, MiB, GiB (powers of 1024), KB, MB, GB. The tables go to stdout, progress to
stderr. docs/bench.md says what the columns mean. Exit code 1 if any element of any result was wrong, or if something
failed.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fairring.bench import launch, options, results

if TYPE_CHECKING:
    from fairring.bench.job import Job
    from fairring.bench.link import LinkSpeed
    from fairring.bench.mpi import Mpi
    from fairring.bench.progress import Reporter
    from fairring.bench.race import Course, Racer, Score
    from fairring.bench.rows import Cluster, Row, Sample

HELP = "all-reduce by size: time, bandwidth, share of the network's limit, cost"

add_arguments = options.add_arguments


def run(arguments: argparse.Namespace) -> int:
    return launch.run_joined(arguments, options.read, _measure)


def _measure(arguments: argparse.Namespace, chosen: options.Options, job: Job) -> int:
    """Returns the exit code, equal on all ranks."""
    from fairring.bench import conditions
    from fairring.bench.mpi import prepare
    from fairring.bench.progress import reporting
    from fairring.bench.race import Racer
    from fairring.bench.rows import make_rows

    here = _of_machines(job, conditions.here())
    links, site_links = [job.measure_link()], [job.measure_site_link()]
    racers = [Racer(contestant) for contestant in chosen.contestants]
    courses = _courses(chosen)
    mpi = prepare(chosen.mpirun, courses[0], job) if chosen.mpirun else None
    rounds = sum(course.warm_up + course.rounds for course in courses)
    with reporting(job.is_first, rounds) as report:
        if isinstance(mpi, str):
            report.done(f"no MPI: {mpi}")
        measured = [_run(course, racers, mpi, job, report) for course in courses]
    links.append(job.measure_link())
    site_links.append(job.measure_site_link())
    cluster = _cluster(job, links, site_links, courses)
    rows = [row for samples in measured for row in make_rows(samples, cluster)]
    if job.is_first:
        facts = conditions.conditions(arguments, job.places, here)
        facts["link_bytes_per_second"] = [asdict(link) for link in links if link]
        facts["site_link_bytes_per_second"] = [asdict(link) for link in site_links if link]
        facts["copy_seconds"] = cluster.copy_seconds
        facts |= {"dtype": chosen.dtype, "op": chosen.op, "in_flight": chosen.in_flight, "sweep": arguments.sweep}
        facts["load_afterwards"] = conditions.here()["load"]
        facts["mpi"] = mpi if mpi is None or isinstance(mpi, str) else mpi.version
        _show(facts, rows)
        results.write(chosen.json, "all-reduce", facts, [asdict(row) for row in rows])
    return 1 if any(row.wrong for row in rows) else 0


def _of_machines(job: Job, here: dict[str, Any]) -> list[dict[str, Any]]:
    """What one rank of each machine says of it, in the machines' order."""
    import torch.distributed as dist

    said: list[dict[str, Any]] = [here] * job.place.world
    dist.all_gather_object(said, here)
    by_machine = {place.machine: one for place, one in zip(job.places, said, strict=True)}
    return [by_machine[machine] for machine in job.machines]


def _courses(chosen: options.Options) -> list[Course]:
    import torch

    from fairring.bench.race import Course

    dtype = getattr(torch, chosen.dtype)
    return [
        Course(size, dtype, chosen.op, chosen.in_flight, *chosen.rounds(size), chosen.check, chosen.goes_in_a_row(size))
        for size in chosen.sizes
    ]


def _run(course: Course, racers: list[Racer], mpi: Mpi | str | None, job: Job, report: Reporter) -> list[Sample]:
    from fairring.bench.arithmetic import percentile
    from fairring.bench.mpi import Mpi
    from fairring.bench.race import race
    from fairring.bench.sizes import format_size

    size = format_size(course.size_bytes)
    report.now(size)
    scores = race(course, racers, report.advance)
    samples = [_sample(course, racer, score) for racer, score in zip(racers, scores, strict=True)]
    if isinstance(mpi, Mpi):
        samples += _run_mpi(course, mpi, job, report)
    medians = (f"{one.name} {percentile(one.seconds, 50) * 1e3:.3f} ms" for one in samples)
    report.done(f"{size}: {', '.join(medians)}")
    return samples


def _run_mpi(course: Course, mpi: Mpi, job: Job, report: Reporter) -> list[Sample]:
    """Nothing where it failed; the reason is shown."""
    from fairring.bench.mpi import race
    from fairring.bench.rows import Sample

    score = race(mpi, course, job)
    if isinstance(score, str):
        report.done(f"no {mpi.name}: {score}")
        return []
    return [Sample(**asdict(score), name=mpi.name, size_bytes=course.size_bytes, in_flight=course.in_flight)]


def _sample(course: Course, racer: Racer, score: Score) -> Sample:
    from fairring.bench.rows import Sample

    return Sample(
        **asdict(score),
        name=racer.contestant.name,
        size_bytes=course.size_bytes,
        in_flight=course.in_flight,
        settings=racer.contestant.settings,
        plan=racer.plan(course.size_bytes),
        sums=racer.contestant.sums,
    )


def _cluster(
    job: Job, links: list[LinkSpeed | None], site_links: list[LinkSpeed | None], courses: list[Course]
) -> Cluster:
    """Of two measurements of the link the faster counts: what slowed the other down was no property of the link."""
    from fairring.bench.memory_speed import copy_seconds
    from fairring.bench.rows import Cluster

    link, site_link = (max((one.slowest for one in of if one), default=None) for of in (links, site_links))
    together = [] if link else [(course.size_bytes * course.in_flight, course.rounds) for course in courses]
    copying = {size_bytes: copy_seconds(size_bytes, rounds) for size_bytes, rounds in together}
    return Cluster(job.place.world, len(job.machines), link, copying, job.sites, site_link)


def _speeds(links: list[dict[str, list[float]]], name: str, end: str) -> str:
    measured = ", ".join(f"{min(link['sent'] + link['received']) / 1e9:.4f}" for link in links)
    return f"{name}: {measured} GB/s per {end} and direction (before, after)" if links else ""


def _show(facts: dict[str, Any], rows: list[Row]) -> None:
    from fairring.bench.conditions import heading
    from fairring.bench.table import COSTS, TIMES, console, make_table

    out = console()
    network = _speeds(facts["link_bytes_per_second"], "link", "machine") or "no network between"
    if facts["site_link_bytes_per_second"]:
        network += "; " + _speeds(facts["site_link_bytes_per_second"], "between sites", "site")
    for line in heading(facts):
        out.print(line, markup=False, soft_wrap=True)
    out.print(f"{facts['op']} of {facts['dtype']}, {facts['in_flight']} in flight; {network}", soft_wrap=True)
    out.print(make_table("Time of the slowest rank", TIMES, rows))
    out.print(make_table("Cost of one go, busiest rank (CPU: all ranks)", COSTS, rows))
