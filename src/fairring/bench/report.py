"""The report of a measurement: what a reader needs to judge the figures, and to reproduce them; heading and file."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fairring.bench import results
from fairring.bench.job import Job
from fairring.bench.link import LinkSpeed
from fairring.bench.placement import Placement, describe
from fairring.check.installation import versions
from fairring.check.machine import processor

VERSIONS = ("fairring", "torch", "python", "kernel")
CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def here() -> dict[str, Any]:
    """The conditions on this rank's machine."""
    return {
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": list(os.getloadavg()),
        "congestion_control": CONGESTION.read_text().strip() if CONGESTION.exists() else None,
    }


def conditions(
    arguments: argparse.Namespace, places: list[Placement], machines: list[dict[str, Any]]
) -> dict[str, Any]:
    """machines: here()'s result for one rank of each. load: waiting processes, over 1, 5 and 15 minutes."""
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["fairring", *arguments.words]),
        "layout": describe(places),
        "ranks_of_machines": [sum(p.machine == m for p in places) for m in sorted({p.machine for p in places})],
        "machines": machines,
        "versions": {name: text for name, text in versions().items() if name in VERSIONS},
        "settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith("FAIRRING_")},
    }


def heading(facts: dict[str, Any]) -> list[str]:
    """The lines above a table."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    first = facts["machines"][0]
    settings = " ".join(f"{name}={value}" for name, value in facts["settings"].items()) or "default settings"
    return [
        f"{facts['layout']}; {settings}",
        f"{versions}; {first['cores']} cores on rank 0's machine ({first['cpu']}), load {first['load'][0]:.1f}, "
        f"TCP by {first['congestion_control']}",
    ]


class Report:
    """The report of one run: all ranks make it at once before they measure, and the first one writes it afterwards."""

    def __init__(self, arguments: argparse.Namespace, job: Job) -> None:
        self._arguments, self._job = arguments, job
        self._machines = job.said_by_machines(here())
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

    def end(self, benchmark: str, facts: dict[str, Any], rows: Sequence[Any], show: Callable[..., object]) -> int:
        """Shows the rows, which are dataclasses, and writes them. facts: the benchmark's own. Returns the exit code."""
        if self._job.is_first:
            found = conditions(self._arguments, self._job.places, self._machines)
            found["link_bytes_per_second"] = [asdict(link) for link in self._links if link]
            found["site_link_bytes_per_second"] = [asdict(link) for link in self._site_links if link]
            found |= facts
            show(found, rows)
            results.write(self._arguments.json, benchmark, found, [asdict(row) for row in rows])
        return 1 if any(getattr(row, "wrong", None) for row in rows) else 0


def print_heading(facts: dict[str, Any], what: str) -> None:
    """what: the thing that was measured."""
    print(*heading(facts), sep="\n")
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
