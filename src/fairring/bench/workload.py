"""The common part of all benchmarks: options, the network's speed before and after, conditions, heading and file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairring.bench import launch, results
from fairring.subcommands import MOST

if TYPE_CHECKING:
    from fairring.bench.job import Job
    from fairring.bench.link import LinkSpeed

Rows = Sequence[Any]  # dataclasses


def add_options(
    parser: argparse.ArgumentParser, backends: str, rounds: tuple[int, int] | None, ranks: str | None = None
) -> None:
    """rounds: timed, and of warm-up, by default; None: the benchmark has options of its own for them."""
    add = parser.add_argument
    text = f"in the order of their turns; fairring[lanes=2] sets FAIRRING_LANES for that one (default: {backends})"
    add("--backends", default=backends, metavar="LIST", help=text)
    if rounds:
        timed, warm_up = rounds
        add("--iterations", type=int, default=timed, metavar="N", help="timed rounds (default: %(default)s)")
        add("--warmup", type=int, default=warm_up, metavar="N", help="untimed ones before (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="for the conditions, the rows and all samples")
    launch.add_arguments(parser, ranks)


def refuse_less(arguments: argparse.Namespace, **least: int) -> None:
    """Raises ValueError for an option that was given and is less than that, or more than any measurement needs."""
    for name, bound in least.items():
        value = getattr(arguments, name)
        if value is not None and value < bound:
            raise ValueError(f"--{name.replace('_', '-')} {value}: at least {bound}")
        if value is not None and value > MOST:
            raise ValueError(f"--{name.replace('_', '-')} {value}: {MOST} at most")


def listed(arguments: argparse.Namespace, name: str, known: Sequence[str]) -> list[str]:
    """The values of an option that takes several with commas. Raises ValueError for one that is not known."""
    values: list[str] = getattr(arguments, name).split(",")
    unknown = next((value for value in values if value not in known), None)
    if unknown is not None:
        raise ValueError(f"--{name}: {unknown!r} is none of {', '.join(known)}")
    return values


class Report:
    """The report of one run: all ranks make it at once before they measure, and the first one writes it afterwards."""

    def __init__(self, arguments: argparse.Namespace, job: Job) -> None:
        from fairring.bench import conditions

        self._arguments, self._job = arguments, job
        self._machines = job.said_by_machines(conditions.here())
        self._links: list[LinkSpeed | None] = []
        self._site_links: list[LinkSpeed | None] = []
        self.measure_links()

    def measure_links(self) -> None:
        """Called by all ranks at once, and once more after the measurement."""
        self._links.append(self._job.measure_link())
        self._site_links.append(self._job.measure_site_link())

    @property
    def link(self) -> float | None:
        return _fastest(self._links)

    @property
    def site_link(self) -> float | None:
        return _fastest(self._site_links)

    def facts(self, **facts: Any) -> dict[str, Any]:
        """The conditions, and what the benchmark adds to them."""
        from fairring.bench import conditions

        found = conditions.conditions(self._arguments, self._job.places, self._machines)
        found["link_bytes_per_second"] = [asdict(link) for link in self._links if link]
        found["site_link_bytes_per_second"] = [asdict(link) for link in self._site_links if link]
        return {**found, **facts}

    def write(self, benchmark: str, facts: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
        results.write(self._arguments.json, benchmark, facts, list(rows))


def print_heading(facts: dict[str, Any], what: str) -> None:
    """what: the thing that was measured."""
    from fairring.bench.conditions import heading

    for line in heading(facts):
        print(line)
    ends = (("link", "machine", "link_bytes_per_second"), ("between sites", "site", "site_link_bytes_per_second"))
    speeds = [text for name, end, fact in ends if (text := _speeds(facts[fact], name, end))]
    print(f"{what}; {'; '.join(speeds) or 'no network between'}")


def _fastest(links: Sequence[LinkSpeed | None]) -> float | None:
    """The fastest of several measurements of a link: a slowdown of the others was no property of the link."""
    return max((link.slowest for link in links if link), default=None)


def _speeds(links: list[dict[str, list[float]]], name: str, end: str) -> str:
    measured = ", ".join(f"{min(link['sent'] + link['received']) / 1e9:.4f}" for link in links)
    when = " (before, after)" if len(links) > 1 else ""
    return f"{name}: {measured} GB/s per {end} and direction{when}" if links else ""
