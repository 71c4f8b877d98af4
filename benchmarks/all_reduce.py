"""Measures all-reduce on gloo and on fairring, in turns, beside the speed of the network in the same run.

    fairring lab --machines 2 --ranks 4 --rate 1gbit -- python benchmarks/all_reduce.py --sizes 64KiB,25MiB
    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-endpoint head:29400 --rdzv-backend c10d benchmarks/all_reduce.py

The table goes to stdout, progress to stderr. What the columns mean is in README.md beside this file. Exit code 1 if any
element of any result was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from link import LinkSpeed, measure_link
from metrics import algorithm_bandwidth, bus_bandwidth, of_limit, percentile
from pattern import EXACT_UP_TO
from placement import Placement, PlacementError, describe
from race import OPS, Course, Score, race
from rich.console import Console
from rich.progress import Progress
from sizes import format_size, parse_size

STOCK = "gloo"
TRANSPORT = "FAIRRING_TRANSPORT"
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in EXACT_UP_TO}
# size up to which it holds, rounds timed, rounds of warm-up: large calls take long and vary little
ROUNDS = ((1 << 20, 50, 5), (32 << 20, 20, 2), (1 << 40, 5, 1))
COLUMNS = (
    "bytes",
    "backend",
    "rounds",
    "p50_ms",
    "p99_ms",
    "algbw_GB/s",
    "busbw_GB/s",
    "of_limit",
    "cpu_s/GB",
    "vs_stock",
    "wrong",
)
ROW = "{:>12} {:>19} {:>7} {:>10} {:>10} {:>11} {:>11} {:>9} {:>9} {:>9} {:>7}"


@dataclass(frozen=True)
class Row:
    """One line of the table; sizes in bytes, times in seconds, bandwidths in bytes/s. None: not defined here."""

    size_bytes: int
    backend: str
    seconds: list[float]  # of the slowest rank, one per round
    median: float
    p99: float
    algorithm_bandwidth: float
    bus_bandwidth: float
    cpu_per_byte: float  # processor seconds of a rank, the mean
    of_limit: float | None  # one machine: no network
    vs_stock: float | None  # the stock backend was not measured
    wrong: int

    def text(self) -> str:
        return ROW.format(
            self.size_bytes,
            self.backend,
            len(self.seconds),
            f"{self.median * 1e3:.3f}",
            f"{self.p99 * 1e3:.3f}",
            f"{self.algorithm_bandwidth / 1e9:.4f}",
            f"{self.bus_bandwidth / 1e9:.4f}",
            "-" if self.of_limit is None else f"{self.of_limit:.3f}",
            f"{self.cpu_per_byte * 1e9:.3f}",
            "-" if self.vs_stock is None else f"{self.vs_stock:.2f}x",
            self.wrong,
        )


def make_rows(course: Course, scores: dict[str, Score], places: list[Placement], link: LinkSpeed | None) -> list[Row]:
    """One row per backend. With several calls in flight the bandwidths are those of all of them together."""
    machines = len({place.machine for place in places})
    together = course.size_bytes * course.in_flight
    medians = {name: percentile(score.seconds, 50) for name, score in scores.items()}
    return [
        Row(
            size_bytes=course.size_bytes,
            backend=name,
            seconds=score.seconds,
            median=medians[name],
            p99=percentile(score.seconds, 99),
            algorithm_bandwidth=algorithm_bandwidth(together, medians[name]),
            bus_bandwidth=bus_bandwidth(together, medians[name], len(places)),
            cpu_per_byte=sum(score.processor_seconds) / len(score.processor_seconds) / together,
            of_limit=of_limit(together, medians[name], machines, link.slowest) if link else None,
            vs_stock=medians[STOCK] / medians[name] if STOCK in medians else None,
            wrong=score.wrong,
        )
        for name, score in scores.items()
    ]


def commit() -> str:
    """The short commit of this checkout, with -dirty if files differ from it, or "unknown" outside of one."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=7"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def conditions(arguments: argparse.Namespace, places: list[Placement], link: LinkSpeed | None) -> dict[str, Any]:
    return {
        "placement": describe(places),
        "link_bytes_per_second": asdict(link) if link else None,
        "dtype": arguments.dtype,
        "op": arguments.op,
        "in_flight": arguments.in_flight,
        "torch": torch.__version__,
        "commit": commit(),
        "cores_of_rank_0": len(os.sched_getaffinity(0)),
        "settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith("FAIRRING_")},
    }


def heading(facts: dict[str, Any], link: LinkSpeed | None) -> str:
    """The comment lines above the table."""
    network = (
        f"link {link.slowest / 1e9:.4f} GB/s per machine and direction (measured)" if link else "no network between"
    )
    warm_up = ", ".join(f"{warm} up to {format_size(limit)}" for limit, _, warm in ROUNDS[:-1])
    settings = " ".join(f"{name}={value}" for name, value in facts["settings"].items()) or "default settings"
    return "\n".join(
        (
            f"# {facts['placement']}, {network}, {facts['op']} of {facts['dtype']}, {facts['in_flight']} in flight",
            f"# torch {facts['torch']}, commit {facts['commit']}, {facts['cores_of_rank_0']} cores on rank 0's machine,"
            f" {settings}",
            f"# rounds: timed, after a warm-up of {warm_up}, else {ROUNDS[-1][-1]}; times: of the slowest rank",
            "#" + ROW.format(*COLUMNS)[1:],
        )
    )


@contextmanager
def progress_reporter(rank: int) -> Iterator[Callable[[Course], Callable[[], object]]]:
    """Yields begin(course), which returns what to call after a round: a bar on a terminal, else a line per size."""
    console = Console(stderr=True, highlight=False)
    if rank != 0:
        yield lambda _: lambda: None
        return
    with Progress(console=console, disable=not console.is_terminal, redirect_stdout=False) as bar:

        def begin(course: Course) -> Callable[[], object]:
            rounds = course.warm_up + course.rounds
            if not console.is_terminal:
                console.print(f"all_reduce: {format_size(course.size_bytes)}, {rounds} rounds", soft_wrap=True)
            task = bar.add_task(format_size(course.size_bytes), total=rounds)
            return lambda: bar.advance(task)

        yield begin


def courses_of(arguments: argparse.Namespace) -> list[Course]:
    courses = []
    for size in arguments.sizes:
        rounds, warm_up = next((timed, warm) for limit, timed, warm in ROUNDS if size <= limit)
        rounds = arguments.rounds or rounds
        courses.append(Course(size, DTYPES[arguments.dtype], arguments.op, arguments.in_flight, rounds, warm_up))
    return courses


def make_group(name: str) -> dist.ProcessGroup:
    """Of all ranks. name: a backend; "fairring:tcp" is fairring with FAIRRING_TRANSPORT=tcp."""
    backend, _, transport = name.partition(":")
    before = os.environ.get(TRANSPORT)
    if transport:
        os.environ[TRANSPORT] = transport
    # The cast: new_group's other result is for ranks that are no members, and all are.
    group = cast("dist.ProcessGroup", dist.new_group(backend=backend))
    if before is None:
        os.environ.pop(TRANSPORT, None)
    else:
        os.environ[TRANSPORT] = before
    return group


def measure(arguments: argparse.Namespace, place: Placement) -> int:
    """Runs everything; the default group (gloo) only coordinates. Returns the exit code, equal on all ranks."""
    places: list[Placement] = [place] * place.world
    dist.all_gather_object(places, place)
    link = measure_link(place, places) if len({other.machine for other in places}) > 1 else None
    groups = {name: make_group(name) for name in arguments.backends}
    facts = conditions(arguments, places, link)
    if place.rank == 0:
        print(heading(facts, link), flush=True)
    rows: list[Row] = []
    with progress_reporter(place.rank) as begin:
        for course in courses_of(arguments):
            rows += make_rows(course, race(course, groups, begin(course)), places, link)
            if place.rank == 0:
                print("\n".join(row.text() for row in rows[-len(groups) :]), flush=True)
    if place.rank == 0 and arguments.json:
        arguments.json.write_text(json.dumps({**facts, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    return 1 if any(row.wrong for row in rows) else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="All-reduce benchmark; start it with torchrun or `fairring lab`.")
    add = parser.add_argument
    add("--sizes", default="4KiB,64KiB,1MiB,25MiB,100MiB", help="of one call's tensor (default %(default)s)")
    add(
        "--backends",
        default="gloo,fairring",
        help="in this order; or fairring:tensorpipe (default %(default)s)",
    )
    add("--dtype", choices=DTYPES, default="float32")
    add("--op", choices=OPS, default="sum")
    add("--in-flight", type=int, default=1, metavar="K", help="calls at once; times are of all K (default 1)")
    add("--rounds", type=int, help="timed rounds per size (default 50 up to 1 MiB, 20 up to 32 MiB, else 5)")
    add("--json", type=Path, help="file for all figures and samples")
    arguments = parser.parse_args()
    try:
        arguments.sizes = [parse_size(size) for size in arguments.sizes.split(",")]
    except ValueError as error:
        parser.error(f"--sizes: {error}")
    arguments.backends = arguments.backends.split(",")
    item = DTYPES[arguments.dtype].itemsize
    if any(size < item or size % item for size in arguments.sizes):
        parser.error(f"--sizes: each must be a positive multiple of {item} bytes, the size of {arguments.dtype}")
    if arguments.in_flight < 1 or (arguments.rounds is not None and arguments.rounds < 1):
        parser.error("--in-flight and --rounds: at least 1")
    return arguments


def main() -> int:
    arguments = parse()
    try:
        place = Placement.from_environment()
    except PlacementError as error:
        print(f"all_reduce: {error}", file=sys.stderr)
        return 2
    if place.world < 2:
        print("all_reduce: WORLD_SIZE=1: an all-reduce of one rank moves nothing; start 2 or more", file=sys.stderr)
        return 2
    ours = any(name.startswith("fairring") for name in arguments.backends)
    if ours and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15):
        import fairring  # noqa: F401  registers the backend; newer PyTorch finds it by its entry point
    dist.init_process_group("gloo")
    try:
        return measure(arguments, place)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
