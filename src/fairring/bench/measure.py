"""The harness: measures a benchmark's workload in the ranks of a job, prints its tables and writes its file.

A workload is a title and heats, which contestants run in turns. The file is one JSON object with format, benchmark,
conditions and rows, whose units are in the names, or seconds and bytes.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from fairring.bench.job import Job, is_on_gpu, joined
from fairring.bench.link import measure_link
from fairring.bench.memory import copy_seconds
from fairring.bench.race import Heat, Racer, race
from fairring.bench.rows import Row, Sample, least_seconds, make_rows
from fairring.bench.table import show
from fairring.by_level import level_names
from fairring.check.installation import versions
from fairring.check.machine import processor

FORMAT = 2
VERSIONS = ("fairring", "torch", "python", "kernel")
CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
ENDS = {"rail": ("link_bytes_per_second", "machine"), "site": ("site_link_bytes_per_second", "site")}


@dataclass(frozen=True)
class Work:
    """A workload. title: for people. heats: in the order in which they are measured. key: what tells heats apart, the
    head of their names' column. facts: further ones for the file; it is read when all heats are over."""

    title: str
    heats: Callable[[Sequence[Racer]], list[Heat]]
    key: str = "size"
    facts: dict[str, Any] = field(default_factory=dict)


def measure(arguments: Namespace) -> int:
    """Called by all ranks of a job. Returns the exit code: 1 if an element of any result was wrong.

    After each heat the file has all that is measured so far, so a run that is cut short leaves that.
    """
    with joined(arguments.device) as job:
        facts = _conditions(job)
        facts |= {fact: [links] if links else [] for fact, links in _links(job).items()}
        work: Work = arguments.module.work(arguments, job)
        results = Results(job, work, facts)
        racers = [Racer(contestant) for contestant in arguments.contestants]
        heats = work.heats(racers)
        rows: list[Row] = []
        measured = []
        for heat in heats:
            measured.append(race(heat, job))
            rows += results.rows(heat, measured[-1])
            results.keep(arguments.json, rows, is_whole=False)
        for fact, links in _links(job).items():
            facts[fact] += [links] if links else []
        facts["load_afterwards"] = list(os.getloadavg())
        rows = []
        for heat, samples in zip(heats, measured, strict=True):
            is_copy = heat.copied_bytes and not facts[ENDS["rail"][0]] and not is_on_gpu()
            rows += results.rows(heat, samples, copy_seconds(heat.copied_bytes, heat.rounds) if is_copy else None)
        results.keep(arguments.json, rows, is_whole=True)
        if job.is_first:
            print(*_heading(facts | work.facts, work.title), sep="\n")
            show(work.key, rows)
        return 1 if any(row["wrong"] for row in rows) else 0


@dataclass(frozen=True)
class Results:
    """facts: the conditions; what is added later holds for later rows and files."""

    job: Job
    work: Work
    facts: dict[str, Any]

    def rows(self, heat: Heat, samples: Sequence[Sample], limit: float | None = None) -> list[Row]:
        """limit: the least seconds of a go where no link limits it."""
        speeds = {level: _fastest(self.facts[fact]) for level, (fact, _) in ENDS.items()}
        least = least_seconds(heat.amounts.least, speeds) or limit
        names = level_names(len(self.job.ranks_of("site")))
        made = make_rows(samples, heat.amounts, least, self.job.place.world, names)
        return [{self.work.key: heat.name, **row} for row in made]

    def keep(self, file: Path | None, rows: Sequence[Row], is_whole: bool) -> None:
        """Half a file is never seen; what is no regular file is written once, when the rows are whole."""
        if not self.job.is_first or file is None or not (is_whole or file.is_file()):
            return
        conditions = self.facts | self.work.facts
        whole = {"format": FORMAT, "benchmark": self.work.title, "conditions": conditions, "rows": rows}
        text = json.dumps(whole | {"is_whole": is_whole}, indent=1) + "\n"
        if not file.is_file():
            file.write_text(text)
            return
        aside = file.resolve().with_name(file.name + ".new")
        aside.write_text(text)
        aside.replace(file.resolve())


def _links(job: Job) -> dict[str, Any]:
    return {fact: measure_link(job, end) for fact, end in ENDS.values()}


def _fastest(links: Sequence[dict[str, list[float]]]) -> float | None:
    """Of several measurements of the slowest end: a slowdown of the others was no property of the link."""
    return max((min(link["sent"] + link["received"]) for link in links), default=None)


def _conditions(job: Job) -> dict[str, Any]:
    """What a reader needs to judge the figures, and to reproduce them. load: waiting processes, in 1, 5, 15 minutes."""
    here = {
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": list(os.getloadavg()),
        "gpu": torch.cuda.get_device_name() if is_on_gpu() else None,
        "congestion_control": CONGESTION.read_text().strip() if CONGESTION.exists() else None,
    }
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(sys.orig_argv[1:]),
        "layout": job.describe(),
        "ranks_of_machines": job.ranks_of("machine"),
        "machines": job.from_machines(here),
        "versions": {name: text for name, text in versions().items() if name in VERSIONS},
        "settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith("FAIRRING_")},
    }


def _heading(facts: dict[str, Any], title: str) -> list[str]:
    """The lines above the tables."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    first = facts["machines"][0]
    gpu = f", {first['gpu']}" if first["gpu"] else ""
    settings = " ".join(f"{name}={value}" for name, value in facts["settings"].items()) or "default settings"
    return [
        f"{facts['layout']}; {settings}",
        f"{versions}; {first['cores']} cores on rank 0's machine ({first['cpu']}{gpu}), load {first['load'][0]:.1f}, "
        f"TCP by {first['congestion_control']}",
        f"{title}; {'; '.join(_speeds(facts)) or 'no network between'}",
        *(f"left out: {text}" for text in facts.get("left_out", ())),
    ]


def _speeds(facts: dict[str, Any]) -> list[str]:
    ends = {name: [_fastest([link]) or 0.0 for link in facts[fact]] for fact, name in ENDS.values()}
    return [
        f"link: {', '.join(f'{speed / 1e9:.4f}' for speed in speeds)} GB/s per {name} and direction (before, after)"
        for name, speeds in ends.items()
        if speeds
    ]
