"""The time of calls and training steps on hypothetical clusters, in virtual time: `fairring plan --simulate`.

Every rank of the cluster runs the engine that it runs in a job; the network and the cost of a core's work are models
(docs/simulation.md). There is one simulation for each number of machines and each call size or training step.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fairring.bench.collectives import BARRIER, COLLECTIVES
from fairring.config import Config, size
from fairring.forecast import at_rate, bytes_per_second, plan_question, rows_of
from fairring.lab.cluster import parse_machines
from fairring.table import terminal_width

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
FORWARD = 1 / 3  # of a step's computing: a backward pass multiplies twice where a forward pass does once
ONLY_SIMULATED = ("collective", "calls", "buckets", "compute", "latency", "core_rate", "cores", "spine")


@dataclass(frozen=True)
class Hardware:
    link: float  # bytes/s of a machine's link, each way
    latency: float  # seconds from machine to machine
    core: float  # bytes/s that one core sends or receives
    cores: int  # that all ranks share; 0: each has its own
    oversubscription: float


@dataclass(frozen=True)
class Model:
    """A training step: bytes of buckets in the order in which gradients are computed, and seconds of computing."""

    buckets: tuple[int, ...]
    compute: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("in virtual time, with --simulate").add_argument
    add("--simulate", action="store_true", help="run the engine in virtual time; --machines and --bytes may be lists")
    add("--collective", choices=COLLECTIVES, help="instead of an all-reduce; SIZE is of all blocks together")
    add("--calls", type=int, metavar="N", help="calls that follow each other, or training steps (default: 1)")
    add("--buckets", metavar="SIZES", help="a training step instead of calls, with these gradients: 1MiB,25MiBx7")
    add("--compute", metavar="TIME", help="what a rank computes in that step, a third of it before the first bucket")
    add("--latency", metavar="TIME", help="from machine to machine (default: 25us)")
    add(
        "--spine",
        type=float,
        metavar="TIMES",
        help="carries so many times less than all links (default: 1)",
    )
    add("--core-rate", metavar="RATE", help="what one core sends or receives (default: 20gbit)")
    add("--cores", type=int, metavar="N", help="that all ranks share, as in a lab (default: one for each rank)")


def check_unused(arguments: argparse.Namespace) -> None:
    """Raises ValueError if there is an option that has a meaning only in virtual time."""
    for name in ONLY_SIMULATED:
        if getattr(arguments, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} is for --simulate; add that, or leave it out")


def simulate(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields an answer for each cluster and size as soon as it is there. Raises ValueError, or as the parsers do."""
    _check(arguments)
    clusters = list(_clusters(arguments))
    model = _model(arguments)
    sizes = [sum(model.buckets)] if model else _sizes(arguments)
    for counts in clusters:
        for call_bytes in sizes:
            yield _simulated(arguments, counts, call_bytes, model)


def show(answers: Iterable[dict[str, Any]], as_json: bool) -> None:
    """Prints each line as soon as it is there; JSON as a whole."""
    if as_json:
        print(json.dumps(list(answers), indent=2))
        return
    for number, answer in enumerate(answers):
        lines = list(_lines(_of_step(answer) if "buckets" in answer else _of_call(answer), terminal_width()))
        if number == 0:
            for line in lines:
                print("  ".join(head.rjust(len(cell)) for head, cell in line), flush=True)
        for line in lines:
            print("  ".join(cell.rjust(len(head)) for head, cell in line), flush=True)


def _lines(cells: Sequence[tuple[str, str]], width: int | None) -> Iterator[list[tuple[str, str]]]:
    """The cells of as many lines as a narrow terminal needs. width: its columns; None: any number."""
    line: list[tuple[str, str]] = []
    used = 0
    for head, cell in cells:
        taken = max(len(head), len(cell)) + 2
        if line and width is not None and used + taken > width:
            yield line
            line, used = [], 0
        line.append((head, cell))
        used += taken
    yield line


def _check(arguments: argparse.Namespace) -> None:
    if arguments.sites != "1" or arguments.site_rate or arguments.site_delay:
        raise ValueError("sites are not simulated; leave out --sites, --site-rate and --site-delay, or --simulate")
    if arguments.transport != "tcp":
        raise ValueError(f"--transport {arguments.transport} is not simulated, tcp is; leave out one of the two")
    if not arguments.rate:
        raise ValueError("a simulation needs --rate, what each machine's link carries each way: --rate 100gbit")
    for option, number, least in (("calls", arguments.calls, 1), ("cores", arguments.cores, 1)):
        if number is not None and number < least:
            raise ValueError(f"--{option} {number} is too few; give {least} at least")
    if arguments.spine is not None and not 1 <= arguments.spine <= 1e6:
        raise ValueError(f"--spine {arguments.spine:g}: give a number from 1; 4 is a quarter of what all links carry")
    if bool(arguments.buckets) != bool(arguments.compute):
        raise ValueError("a training step needs --buckets and --compute: --buckets 1MiB,25MiBx7 --compute 350ms")
    if arguments.buckets and arguments.collective:
        raise ValueError("a training step makes all-reduces; leave out --collective or --buckets")


def _sizes(arguments: argparse.Namespace) -> list[int]:
    """Bytes of each call. A barrier has no size of its own: it is an all-reduce of one byte."""
    if arguments.collective == BARRIER:
        return [1]
    return [size("--bytes", text) for text in arguments.bytes.split(",")]


def _clusters(arguments: argparse.Namespace) -> Iterator[tuple[int, ...]]:
    """Ranks of each machine."""
    for text in (arguments.machines or "").split(","):
        yield parse_machines(arguments.ranks, machine_count(text) if text else None)


def machine_count(text: str) -> int:
    """Raises ValueError."""
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise ValueError(f"--machines {text} is not a number of machines; write 8, or 8,64,512 with --simulate")
    return int(text)


def _model(arguments: argparse.Namespace) -> Model | None:
    if not arguments.buckets:
        return None
    buckets: list[int] = []
    for text in arguments.buckets.split(","):
        one, _, times = text.partition("x")
        if times and not re.fullmatch(r"[1-9]\d{0,4}", times):
            raise ValueError(f"--buckets {text} is no size and number of buckets; write for instance 25MiBx7")
        buckets += [size("--buckets", one)] * int(times or 1)
    return Model(tuple(buckets), _seconds("--compute", arguments.compute))


def _seconds(option: str, text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", text)
    if match is None:
        raise ValueError(f"{option} {text} is not a time; write for instance 25us, 350ms or 1.5s")
    return float(match[1]) * UNITS[match[2]]


def _hardware(arguments: argparse.Namespace) -> Hardware:
    from fairring import _core

    known = _core.simulated_hardware()
    return Hardware(
        link=bytes_per_second("--rate", arguments.rate),
        latency=_seconds("--latency", arguments.latency) if arguments.latency else known["latency_seconds"],
        core=bytes_per_second("--core-rate", arguments.core_rate)
        if arguments.core_rate
        else known["core_bytes_per_second"],
        cores=arguments.cores or 0,
        oversubscription=arguments.spine or 1.0,
    )


def _simulated(
    arguments: argparse.Namespace, counts: tuple[int, ...], call_bytes: int, model: Model | None
) -> dict[str, Any]:
    from fairring import _core

    config = Config.from_environment()
    hardware = _hardware(arguments)
    machines = [str(machine) for machine, count in enumerate(counts) for _ in range(count)]
    rows = at_rate(rows_of(config, "tcp"), arguments.rate, max(counts))
    question = _core.SimulationQuestion()
    question.cluster = plan_question(config, machines, rows, call_bytes)
    question.link_bytes_per_second, question.latency_seconds = hardware.link, hardware.latency
    question.core_bytes_per_second, question.cores = hardware.core, hardware.cores
    question.oversubscription = hardware.oversubscription
    question.collective, question.times = arguments.collective or "all-reduce", arguments.calls or 1
    if model:
        question.buckets = list(model.buckets)
        question.forward_seconds = model.compute * FORWARD
        question.backward_seconds = model.compute * (1 - FORWARD)
    answer = {"machines": len(counts), "ranks": len(machines), "bytes": call_bytes, **_core.simulate(question)}
    if model:
        answer |= {"buckets": len(model.buckets), "compute_seconds": model.compute}
        answer["efficiency"] = model.compute / answer["seconds"] if answer["seconds"] else 1.0
    else:
        answer["bus_bandwidth"] = _bus_bandwidth(question.collective, answer)
    return answer


def _bus_bandwidth(collective: str, answer: dict[str, Any]) -> float:
    """Bytes/s per rank, comparable with the wire of a flat ring."""
    return float(answer["bytes"] / answer["seconds"]) * COLLECTIVES[collective].bus_factor(answer["ranks"])


def _common(answer: dict[str, Any]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Columns in front and behind: head and cell."""
    front = [("machines", str(answer["machines"])), ("ranks", str(answer["ranks"]))]
    back = [
        ("messages of a rank", f"{answer['messages']:.{0 if answer['messages'] >= 10 else 1}f}"),
        ("connections", str(answer["connections"])),
        ("MB over the busiest link", f"{answer['link_bytes'] / 1e6:.3f}"),
    ]
    return front, back


def _of_call(answer: dict[str, Any]) -> list[tuple[str, str]]:
    front, back = _common(answer)
    own = [
        ("bytes".rjust(11), str(answer["bytes"])),
        ("simulated".rjust(12), f"{answer['seconds'] * 1e3:.3f} ms"),
        ("bus bandwidth", f"{answer['bus_bandwidth'] / 1e9:.3f} GB/s"),
    ]
    return front + own + back


def _of_step(answer: dict[str, Any]) -> list[tuple[str, str]]:
    front, back = _common(answer)
    waited = answer["seconds"] - answer["compute_seconds"]
    own = [
        ("simulated step", f"{answer['seconds'] * 1e3:.3f} ms"),
        ("computing".rjust(12), f"{answer['compute_seconds'] * 1e3:.3f} ms"),
        ("waiting".rjust(12), f"{waited * 1e3:.3f} ms"),
        ("efficiency", f"{answer['efficiency'] * 100:.1f} %"),
        ("ranks' worth", f"{answer['efficiency'] * answer['ranks']:.1f}"),
    ]
    return front + own + back
