"""The options of all benchmarks, and where one runs: in a launcher's ranks, or in an emulated cluster of its own.

A benchmark's module has add_arguments(parser); read(arguments), which raises ValueError for arguments that make no
sense and adds what it has made of them; and work(arguments, job), which says in a rank what is measured.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from fairring.bench.contestants import FLOOR, STOCK, parse_contestants
from fairring.extra import OF_LABS, OF_OBJECTS, require
from fairring.subcommands import MOST

STARTED_BY_HAND = 2  # argparse's exit code for bad arguments
HOW = (
    "this is no rank of a job (RANK is not set): give --machines and --ranks for an emulated cluster, or start it with"
    " `torchrun ... -m fairring bench ...` on every machine"
)


def add_options(parser: argparse.ArgumentParser, backends: str, rounds: tuple[int, int] | None) -> None:
    """backends: by default; stock is torch's own for the device. rounds: timed, and of warm-up, by default; None: the
    benchmark has options of its own for them.
    """
    add = parser.add_argument
    text = f"by turns; fairring[lanes=2] sets FAIRRING_LANES for that one; stock is gloo or nccl (default: {backends})"
    add("--backends", default=backends, metavar="LIST", help=text)
    add("--device", choices=STOCK, default="cpu", help="that has the tensors (default: cpu)")
    if rounds:
        timed, warm_up = rounds
        add("--iterations", type=int, default=timed, metavar="N", help="timed rounds (default: %(default)s)")
        add("--warmup", type=int, default=warm_up, metavar="N", help="untimed ones before (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="for the conditions, the rows and all samples")
    lab = parser.add_argument_group("an emulated cluster (not where torchrun or `fairring lab` starts the ranks)")
    lab.add_argument("--machines", type=int, metavar="N", help="how many machines")
    lab.add_argument("--ranks", metavar="N", help="on every machine, or for each: 4,3,2")
    lab.add_argument("--sites", default="1", metavar="N", help="of the machines, or the machines of each: 3,1")
    lab.add_argument("--site-rate", default="none", metavar="RATE", help="of each site's uplink (default: none)")
    lab.add_argument("--site-delay", default="0ms", metavar="TIME", help="from site to site, one way (default: 0ms)")
    lab.add_argument("--rate", default="1gbit", help="of each machine's link: 100mbit, 10gbit, none (default: 1gbit)")


def refuse_less(arguments: argparse.Namespace, **least: int) -> None:
    """Raises ValueError for an option that was given and is less than that, or more than any measurement needs."""
    for name, bound in least.items():
        value = getattr(arguments, name)
        if value is not None and not bound <= value <= MOST:
            limit = f"at least {bound}" if value < bound else f"{MOST} at most"
            raise ValueError(f"--{name.replace('_', '-')} {value}: {limit}")


def refuse_floor(arguments: argparse.Namespace) -> None:
    """Raises ValueError where a backend without results has no meaning."""
    if any(one.backend == FLOOR for one in arguments.contestants):
        raise ValueError(f"--backends {arguments.backends}: {FLOOR} has no results, which this benchmark needs")


def listed(arguments: argparse.Namespace, name: str, known: Sequence[str]) -> list[str]:
    """The values of an option that takes several with commas. Raises ValueError for one that is not known."""
    values: list[str] = getattr(arguments, name).split(",")
    unknown = next((value for value in values if value not in known), None)
    if unknown is not None:
        raise ValueError(f"--{name}: {unknown!r} is none of {', '.join(known)}")
    return values


def is_rank() -> bool:
    return "RANK" in os.environ


def main(module: ModuleType) -> int:
    """The program of a benchmark outside of the package. Returns the exit code."""
    parser = argparse.ArgumentParser(description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    module.add_arguments(parser)
    arguments = parser.parse_args()
    if "FAIRRING_REPLACE" in os.environ:
        parser.error("unset FAIRRING_REPLACE, by which gloo would be Fairring here")
    arguments.parser, arguments.module = parser, module
    return run(arguments)


def run(arguments: argparse.Namespace) -> int:
    """A benchmark's command: reads what it is told, and measures as a rank or in every rank of an emulated cluster.

    Returns the exit code; what goes wrong is said on stderr.
    """
    try:
        refuse_less(arguments, iterations=1, warmup=0)
        arguments.stock = STOCK[arguments.device]
        arguments.contestants = parse_contestants(re.sub(r"\bstock\b", arguments.stock, arguments.backends))
        arguments.module.read(arguments)
        _refuse_unwritable(arguments.json)
    except ValueError as error:
        arguments.parser.error(str(error))
    require("fairring bench", OF_OBJECTS, *([] if is_rank() else [OF_LABS]))
    if not is_rank():
        return run_elsewhere(arguments)
    from fairring.bench.measure import measure

    try:
        return measure(arguments)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"fairring bench: {error}", file=sys.stderr)
        return 1


def _refuse_unwritable(file: Path | None) -> None:
    """Before anything is measured: raises ValueError where the results could not be kept. Makes the file.

    In the process that writes results, or that starts the one that does.
    """
    if file is None or os.environ.get("RANK", "0") != "0":
        return
    try:
        file.open("a").close()
    except OSError as error:
        raise ValueError(
            f"--json {file} can't be written ({error.strerror}); give a file in a folder that is there"
        ) from error


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
    cluster.command = [sys.executable, *sys.orig_argv[1:]]
    return lab.run(cluster)
