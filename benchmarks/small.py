"""Small all-reduces on everything that can do them, in one table: the engine alone beside bare sockets and TensorPipe
(benchmarks/cpp/engine.cc), dist.all_reduce beside its own floor and gloo (calls.py), and MPI where it is given.

    python benchmarks/small.py --engine build/.../fairring_engine_bench --mpi "Open MPI=/opt/openmpi/bin/mpirun"

Each program runs in the lab, all of them in turns, several times. A figure is the median of the runs' figures; beside
the median of the calls stands that of the quickest run, for other programs on the machine only make it slower.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COLUMNS = ("machines", "bytes", "contender", "calls", "p50_us", "best_us", "p99_us", "of_sockets", "wrong")
LINE = "{:>10} {:>6} {:<26} {:>6} {:>9} {:>9} {:>9} {:>10} {:>6}"
FLOOR = "sockets, "


@dataclass(frozen=True)
class Layout:
    machines: int
    ranks: int  # of each

    def __str__(self) -> str:
        return f"{self.machines}x{self.ranks}"


@dataclass(frozen=True)
class Program:
    """A program that prints lines of JSON when the lab runs it."""

    command: list[str]
    starts_ranks: bool = False  # by itself: the lab starts one process per machine
    environment: dict[str, str] | None = None

    def run(self, layout: Layout, rate: str) -> list[dict[str, Any]]:
        ranks = 1 if self.starts_ranks else layout.ranks
        command = [part.format(ranks=layout.ranks) for part in self.command]
        lab = ["lab", "--machines", str(layout.machines), "--ranks", str(ranks), "--rate", rate, "--only-rank", "0"]
        done = subprocess.run(
            [sys.executable, "-m", "fairring", *lab, "--", *command],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            env=self.environment,
        )
        if done.returncode:
            print(f"small: exit code {done.returncode} from {' '.join(command)} at {layout}", file=sys.stderr)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def mpi_program(name: str, mpirun: Path, directory: str, calls: int, sizes: list[int]) -> Program:
    """Compiles benchmarks/mpi/all_reduce.c with the mpicc beside this mpirun."""
    binary = Path(directory, name.replace(" ", "-"))
    prefix = mpirun.parent.parent
    environment = {  # of an MPI that was moved: wheels are
        **os.environ,
        "OPAL_PREFIX": str(prefix),
        "I_MPI_ROOT": str(prefix),
        "PATH": f"{mpirun.parent}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{prefix}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}",
    }
    source = HERE / "mpi" / "all_reduce.c"
    subprocess.run([mpirun.with_name("mpicc"), "-O2", "-o", binary, source], check=True, env=environment)
    start = [sys.executable, str(HERE / "mpi" / "start.py"), "{ranks}", str(mpirun)]
    command = [*start, str(binary), name, str(calls), *map(str, sizes)]
    return Program(command, starts_ranks=True, environment=environment)


def programs_of(arguments: argparse.Namespace, directory: str) -> list[Program]:
    sizes = ",".join(map(str, arguments.sizes))
    options = ["--calls", str(arguments.calls), "--sizes", sizes]
    programs = [Program([arguments.engine, *options]), Program([sys.executable, str(HERE / "calls.py"), *options])]
    for given in arguments.mpi:
        name, _, mpirun = given.partition("=")
        programs.append(mpi_program(name, Path(mpirun), directory, arguments.calls, arguments.sizes))
    return programs


def rows_of(layout: Layout, samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each size and contender, of all runs."""
    runs: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for sample in samples:
        runs[sample["bytes"], sample["contender"]].append(sample)
    rows = []
    for (size, contender), of in runs.items():
        median = statistics.median(run["p50_us"] for run in of)
        floors = [
            statistics.median(run["p50_us"] for run in others)
            for (other, name), others in runs.items()
            if other == size and name.startswith(FLOOR)
        ]
        rows.append(
            {
                "machines": str(layout),
                "bytes": size,
                "contender": contender,
                "calls": sum(run["calls"] for run in of),
                "p50_us": round(median, 1),
                "best_us": round(min(run["p50_us"] for run in of), 1),
                "p99_us": round(statistics.median(run["p99_us"] for run in of), 1),
                "of_sockets": round(median / min(floors), 2) if floors else "-",
                "wrong": sum(run["wrong"] for run in of),
            }
        )
    return sorted(rows, key=lambda row: row["bytes"])


def conditions(arguments: argparse.Namespace) -> dict[str, Any]:
    commit = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=7"]
    return {
        "commit": subprocess.run(commit, capture_output=True, text=True, check=False).stdout.strip() or "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "rate": arguments.rate,
        "runs": arguments.runs,
        "load": os.getloadavg()[0],
        "settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith("FAIRRING_")},
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Small all-reduces in the lab, everything beside bare sockets.")
    add = parser.add_argument
    add("--engine", required=True, help="the program fairring_engine_bench")
    add("--mpi", action="append", default=[], metavar="NAME=MPIRUN", help="an MPI, with its mpicc beside; repeatable")
    add("--layouts", default="2x1,2x2,4x1", help="machines x ranks of each (default %(default)s)")
    add("--sizes", default="4,64,512,4096", help="bytes of one call's tensor (default %(default)s)")
    add("--calls", type=int, default=1000, help="for each size, contender and run (default %(default)s)")
    add("--runs", type=int, default=3, help="of each program (default %(default)s)")
    add("--rate", default="1gbit", help="of each machine's link (default %(default)s)")
    add("--json", type=Path, help="file for the conditions, the rows and every run's figures")
    arguments = parser.parse_args()
    arguments.layouts = [Layout(*map(int, layout.split("x"))) for layout in arguments.layouts.split(",")]
    arguments.sizes = list(map(int, arguments.sizes.split(",")))
    return arguments


def main() -> int:
    arguments = parse()
    facts = conditions(arguments)
    print("# " + ", ".join(f"{name} {value}" for name, value in facts.items() if value), flush=True)
    print("#" + LINE.format(*COLUMNS)[1:], flush=True)
    rows, samples = [], []
    with tempfile.TemporaryDirectory() as directory:
        programs = programs_of(arguments, directory)
        for layout in arguments.layouts:
            of_layout = [
                sample
                for _ in range(arguments.runs)
                for program in programs
                for sample in program.run(layout, arguments.rate)
            ]
            samples += [{"machines": str(layout), **sample} for sample in of_layout]
            rows += rows_of(layout, of_layout)
            for row in rows_of(layout, of_layout):
                print(LINE.format(*row.values()), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({**facts, "rows": rows, "runs_of": samples}, indent=1) + "\n")
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
