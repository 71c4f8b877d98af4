"""The plans that an all-reduce could take, predicted: `fairring plan --machines 8 --ranks 4 --bytes 25MiB`

Reckons as the planner does in a job, from the topology, FAIRRING_TOTAL_MEMORY, FAIRRING_SLICE_SIZE and the cost rows
(FAIRRING_COST_ROWS, or those that are built in for the transport). Needs no cluster. The first plan is the choice;
messages and bytes are those of the busiest rank.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from fairring.by_level import level_names
from fairring.config import TENSORPIPE_TRANSPORTS
from fairring.subcommands import at_least
from fairring.table import Table, show

HELP = "print the plans of an all-reduce and what they are expected to take"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--machines", type=at_least(1), metavar="N", help="how many machines (default: as --ranks says, else 1)")
    add("--ranks", default="1", metavar="N", help="ranks on every machine, or one number for each: 4,3,2 (default: 1)")
    add("--bytes", default="25MiB", metavar="SIZE", help="of the tensor (default: 25MiB)")
    add(
        "--transport",
        choices=("tcp", "verbs", *TENSORPIPE_TRANSPORTS),
        default="tcp",
        help="between machines (default: tcp)",
    )
    text = "of each machine's link, each way, instead of the cost row's: 1gbit, 100gbit; its ranks share it"
    add("--rate", metavar="RATE", help=text)
    add("--sites", default="1", metavar="N", help="of the machines, or the machines of each: 3,1 (default: 1)")
    add("--site-rate", metavar="RATE", help="likewise, of each site's uplink; its ranks share it")
    add("--site-delay", metavar="TIME", help="from site to site, one way, instead of the cost row's latency: 20ms")
    add(
        "--format",
        default="",
        metavar="NAME",
        help="in which it crosses between sites: bf16, int8, int4 (default: as it is)",
    )
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
        _show(plans, 1 if arguments.sites == "1" else 2)
    return 0


def predict(arguments: argparse.Namespace, *, flat: bool = False) -> list[dict[str, Any]]:
    """The predictions, the best first. Raises ValueError, or what the parsers of sizes and machines raise.

    flat: as if machines never stood in groups.
    """
    from fairring.config import Config, size
    from fairring.forecast import at_rate, forecast, rows_of
    from fairring.lab.cluster import bits_per_second, parse_machines
    from fairring.lab.sites import parse_sites

    config = Config.from_environment()
    counts = parse_machines(arguments.ranks, arguments.machines)
    call_bytes = size("--bytes", arguments.bytes)
    sites = parse_sites(arguments.sites, "none", arguments.site_delay or "0ms", len(counts))
    rows = rows_of(config, arguments.transport)
    if arguments.rate:
        rows = at_rate(rows, arguments.rate, max(counts))
    site_of = sites.of_machines()
    of_sites = [str(site_of[machine]) for machine, count in enumerate(counts) for _ in range(count)]
    if arguments.site_rate:
        share = bits_per_second(arguments.site_rate) / 8 / max(map(of_sites.count, of_sites))
        rows = [*rows[:-1], (*rows[-1][:2], share, rows[-1][3])]
    if arguments.site_delay:
        rows = [*rows[:-1], (sites.delay, *rows[-1][1:])]
    machines = [str(machine) for machine, count in enumerate(counts) for _ in range(count)]
    return forecast(config, machines, rows, call_bytes, of_sites, flat=flat, site_format=arguments.format)


def _show(plans: Sequence[dict[str, Any]], sites: int) -> None:
    names = level_names(sites)
    levels = [names[entry["level"]] for entry in plans[0]["levels"]]
    heads = [f"{level}: {what}" for level in levels for what in ("messages", "bytes")]
    table = Table(("plan", "predicted", "slices", *heads), left=["plan"])
    for number, plan in enumerate(plans):
        cells = [
            text for entry in plan["levels"] for text in (str(entry["messages"]), f"{entry['bytes'] / 1e6:.3f} MB")
        ]
        chosen = " (chosen)" if number == 0 else ""
        slices = f"{plan['slices']} of {plan['slice_bytes'] / (1 << 20):.4g} MiB"
        table.add(plan["steps"] + chosen, f"{plan['seconds'] * 1e3:.3f} ms", slices, *cells)
    show(table)
