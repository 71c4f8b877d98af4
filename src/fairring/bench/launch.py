"""The options of all benchmarks, and where one runs: in a launcher's ranks, or in an emulated cluster of its own."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from fairring.bench import results
from fairring.subcommands import MOST

Read = TypeVar("Read")

STARTED_BY_HAND = 2  # argparse's exit code for bad arguments
HOW = (
    "this is no rank of a job (RANK is not set): give --machines and --ranks for an emulated cluster, or start it with"
    " `torchrun ... -m fairring bench ...` on every machine"
)


def add_options(parser: argparse.ArgumentParser, backends: str, rounds: tuple[int, int] | None) -> None:
    """rounds: timed, and of warm-up, by default; None: the benchmark has options of its own for them."""
    add = parser.add_argument
    text = f"in the order of their turns; fairring[lanes=2] sets FAIRRING_LANES for that one (default: {backends})"
    add("--backends", default=backends, metavar="LIST", help=text)
    if rounds:
        timed, warm_up = rounds
        add("--iterations", type=int, default=timed, metavar="N", help="timed rounds (default: %(default)s)")
        add("--warmup", type=int, default=warm_up, metavar="N", help="untimed ones before (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="for the conditions, the rows and all samples")
    _add_cluster(parser)


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


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    lab = parser.add_argument_group("an emulated cluster (not where torchrun or `fairring lab` starts the ranks)")
    lab.add_argument("--machines", type=int, metavar="N", help="how many machines")
    lab.add_argument("--ranks", metavar="N", help="on every machine, or for each: 4,3,2")
    lab.add_argument("--sites", default="1", metavar="N", help="of the machines, or the machines of each: 3,1")
    lab.add_argument("--site-rate", default="none", metavar="RATE", help="of each site's uplink (default: none)")
    lab.add_argument("--site-delay", default="0ms", metavar="TIME", help="from site to site, one way (default: 0ms)")
    lab.add_argument("--rate", default="1gbit", help="of each machine's link: 100mbit, 10gbit, none (default: 1gbit)")


def is_rank() -> bool:
    return "RANK" in os.environ


def writes() -> bool:
    """Whether this process writes results, or starts the one that does."""
    return os.environ.get("RANK", "0") == "0"


def run(
    arguments: argparse.Namespace,
    read: Callable[[argparse.Namespace], Read],
    measure: Callable[[argparse.Namespace, Read], int],
) -> int:
    """A benchmark's command: reads what it is told (ValueError: what is wrong with that) and measures, as a rank or in
    every rank of an emulated cluster. Returns the exit code; what goes wrong is said on stderr."""
    try:
        told = read(arguments)
        if writes():
            results.refuse_unwritable(arguments.json)
    except ValueError as error:
        arguments.parser.error(str(error))
    if not is_rank():
        return run_elsewhere(arguments)
    try:
        return measure(arguments, told)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"fairring bench: {error}", file=sys.stderr)
        return 1


def run_joined(arguments: argparse.Namespace, read: Callable[[argparse.Namespace], Read], module: str) -> int:
    """The same for a benchmark whose ranks meet in a default group first. module: its measure(arguments, told, job),
    equal on all ranks; imported only there, as it needs torch."""

    def join(arguments: argparse.Namespace, told: Read) -> int:
        from fairring.bench.job import joined

        measure: Callable[..., int] = import_module(module).measure
        with joined() as job:
            return measure(arguments, told, job)

    return run(arguments, read, join)


def run_elsewhere(arguments: argparse.Namespace) -> int:
    """Runs the same command in every rank of an emulated cluster; returns its exit code."""
    if arguments.machines is None and arguments.ranks is None:
        print(f"fairring bench: {HOW}", file=sys.stderr)
        return STARTED_BY_HAND
    from fairring.lab import command as lab

    # c10d warns of every connection from an address without a host name, and the lab's addresses have none.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    parser = argparse.ArgumentParser(prog="fairring bench")
    lab.add_arguments(parser)
    words = ["--ranks", arguments.ranks or "1", "--rate", arguments.rate, "--only-rank", "0"]
    words += ["--sites", arguments.sites, "--site-rate", arguments.site_rate, "--site-delay", arguments.site_delay]
    words += ["--machines", str(arguments.machines)] if arguments.machines is not None else []
    cluster = parser.parse_args(words)
    cluster.parser = parser
    cluster.command = [sys.executable, "-m", "fairring", *arguments.words]
    return lab.run(cluster)
