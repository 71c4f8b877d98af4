"""The plans that an all-reduce could take, predicted: `fairring plan --machines 8 --ranks 4 --bytes 25MiB`

Reckons as the planner does in a job, from the topology, FAIRRING_TOTAL_MEMORY, FAIRRING_SLICE_SIZE and the cost rows
(FAIRRING_COST_ROWS, or those that are built in for the transport). Needs no cluster. The first plan is the choice;
messages and bytes are those of the busiest rank.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

HELP = "print the plans of an all-reduce and what they are expected to take"

TRANSPORTS = ("tcp", "uv", "shm", "ibv")
BITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
LEVELS = ("machine", "rail", "groups")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--machines", type=int, metavar="N", help="how many machines (default: as --ranks says, else 1)")
    add("--ranks", default="1", metavar="N", help="ranks on every machine, or one number for each: 4,3,2 (default: 1)")
    add("--bytes", default="25MiB", metavar="SIZE", help="of the tensor (default: 25MiB)")
    add("--transport", choices=TRANSPORTS, default="tcp", help="between machines (default: tcp)")
    text = "of each machine's link, each way, instead of the cost row's: 1gbit, 100gbit; its ranks share it"
    add("--rate", metavar="RATE", help=text)
    add("--json", action="store_true", help="JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    from fairring.config import ConfigError
    from fairring.lab.cluster import LabError

    try:
        plans = predict(arguments)
    except (ConfigError, LabError, ValueError, RuntimeError) as error:
        print(f"fairring plan: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(plans, indent=2))
    else:
        _show(plans)
    return 0


def predict(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The best first. Raises ValueError or what the parsers of sizes and machines raise."""
    from fairring.config import Config, size
    from fairring.forecast import forecast, rows_of
    from fairring.lab.cluster import parse_machines

    config = Config.from_environment()
    counts = parse_machines(arguments.ranks, arguments.machines)
    call_bytes = size("--bytes", arguments.bytes)
    import torch  # noqa: F401  the C++ module needs its libraries

    rows = rows_of(config, arguments.transport)
    if arguments.rate:
        rows = at_rate(rows, arguments.rate, max(counts))
    machines = [str(machine) for machine, count in enumerate(counts) for _ in range(count)]
    return forecast(config, machines, rows, call_bytes)


def at_rate(
    rows: Sequence[tuple[float, float, float, float]], rate: str, ranks: int
) -> list[tuple[float, float, float, float]]:
    """The rows with the bandwidth between machines that each of a machine's ranks has of a link. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", rate.lower())
    bits = float(match[1]) * BITS[match[2]] if match else 0.0
    if not bits:
        raise ValueError(f"--rate {rate} is not a rate; write for instance 100mbit, 1gbit or 100gbit")
    share = bits / 8 / ranks
    machine, *others = rows
    return [machine, *((latency, message, share, summed) for latency, message, _, summed in others)]


def _show(plans: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    levels = [LEVELS[entry["level"]] for entry in plans[0]["levels"]]
    heads = [f"{level}: {what}" for level in levels for what in ("messages", "bytes")]
    for column in ("plan", "predicted", "slices", *heads):
        table.add_column(column, no_wrap=True)
    for number, plan in enumerate(plans):
        cells = [
            text for entry in plan["levels"] for text in (str(entry["messages"]), f"{entry['bytes'] / 1e6:.3f} MB")
        ]
        chosen = " (chosen)" if number == 0 else ""
        slices = f"{plan['slices']} of {plan['slice_bytes'] / (1 << 20):.4g} MiB"
        table.add_row(plan["steps"] + chosen, f"{plan['seconds'] * 1e3:.3f} ms", slices, *cells)
    Console(highlight=False, width=180 if not sys.stdout.isatty() else None).print(table)
