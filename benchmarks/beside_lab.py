"""Collectives in the lab beside the same ones in virtual time: the table in docs/simulation.md.

    python benchmarks/beside_lab.py broadcast all-to-all --clusters 2x2,4x2

For each collective and cluster it runs `fairring bench` in the lab and then `fairring plan --simulate` with the lab's
link and cores, and prints a line of the table for each size. Calls follow each other there as they do here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fairring.bench.collectives import BARRIER, COLLECTIVES
from fairring.bench.options import SMALL_BYTES, SMALL_IN_A_ROW

RATE = "1gbit"


@dataclass(frozen=True)
class Line:
    cluster: str  # machines x ranks of each
    collective: str
    size_bytes: int
    measured: float  # median, seconds
    deviation: float  # median distance of the samples from it
    simulated: float

    def __str__(self) -> str:
        size = "" if self.collective == BARRIER else f" {_size(self.size_bytes)}"
        times = " | ".join(f"{seconds * 1e3:.3g}" for seconds in (self.measured, self.deviation, self.simulated))
        return f"| {self.cluster} | {self.collective}{size} | {times} | {self.simulated / self.measured - 1:+.0%} |"


def _size(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"


def _fairring(*words: str) -> str:
    command = [sys.executable, "-m", "fairring", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def measured(collective: str, machines: str, ranks: str, words: list[str]) -> list[dict[str, Any]]:
    """The rows of `fairring bench`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        where = ("--machines", machines, "--ranks", ranks, "--rate", RATE, "--backends", "fairring")
        _fairring("bench", collective, *where, *words, "--json", str(file))
        return cast("list[dict[str, Any]]", json.loads(file.read_text())["rows"])


def simulated(collective: str, machines: str, ranks: str, size_bytes: int) -> float:
    """Seconds of a call."""
    in_a_row = SMALL_IN_A_ROW if size_bytes <= SMALL_BYTES else 1
    where = ("--machines", machines, "--ranks", ranks, "--rate", RATE, "--cores", str(os.cpu_count()))
    call = ("--collective", collective, "--bytes", str(size_bytes), "--calls", str(in_a_row))
    return float(json.loads(_fairring("plan", "--simulate", "--json", *where, *call))[0]["seconds"])


def lines(collective: str, cluster: str, sizes: str, iterations: str | None) -> Iterator[Line]:
    machines, _, ranks = cluster.partition("x")
    words = [] if collective == BARRIER else ["--sizes", sizes]
    if iterations:
        words += ["--iterations", iterations]
    for row in measured(collective, machines, ranks, words):
        size_bytes = row["size_bytes"]
        seconds = simulated(collective, machines, ranks, size_bytes)
        yield Line(f"{machines} x {ranks}", collective, size_bytes, row["median"], row["deviation"], seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description="Collectives in the lab beside the same ones in virtual time.")
    parser.add_argument("collectives", nargs="*", default=list(COLLECTIVES), help="default: all")
    parser.add_argument("--clusters", default="2x2,4x2", help="machines x ranks (default %(default)s)")
    parser.add_argument("--sizes", default="4KiB,64KiB,1MiB,25MiB", help="default %(default)s")
    parser.add_argument("--iterations", help="timed ones (default: as `fairring bench` has them)")
    arguments = parser.parse_args()
    for collective in arguments.collectives:
        for cluster in arguments.clusters.split(","):
            for line in lines(collective, cluster, arguments.sizes, arguments.iterations):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
