"""Show what Fairring sees on this machine or, on every rank, between all of them: `torchrun ... -m fairring check`

Prints machines, interfaces, RDMA devices and why each is or isn't used, GPUs, the transport of each level with its
measured latency and bandwidth, the plan for 25 MiB, and warnings with advice. Rank 0 prints. Without a launcher's
variables (MASTER_ADDR) it looks at this machine alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairring.subcommands import seconds

HELP = "print what Fairring sees here and between all ranks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--json", action="store_true", help="JSON instead of tables")
    text = "write the measured cost rows to this file, for FAIRRING_COST_ROWS on all ranks"
    add("--save", type=Path, metavar="FILE", help=text)
    text = "how long to wait for other ranks (default: 120)"
    add("--timeout", type=seconds(0.1), default=120.0, metavar="SECONDS", help=text)


def run(arguments: argparse.Namespace) -> int:
    from fairring import register
    from fairring.config import Config, ConfigError

    try:
        config = Config.from_environment()
        register()
        report = _together(config, arguments) if config.master_address else _alone(config, arguments)
    except (ConfigError, RuntimeError, OSError) as error:
        print(f"fairring check: {error}", file=sys.stderr)
        return 1
    if report:
        _print(report, arguments.json)
    return 0


def _print(report: dict[str, Any], as_json: bool) -> None:
    from fairring.check import table

    if as_json:
        print(json.dumps(report, indent=2))
    else:
        table.print_report(report)


def _alone(config: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    from fairring import facts, interfaces
    from fairring.check import advice, report, system

    if arguments.save:
        raise OSError("--save needs several ranks to measure between: start it with torchrun")
    choice = interfaces.choose(config, facts.ELSEWHERE[0], 0)
    machine = config.machine or facts.machine()
    here = system.describe(choice, peers=1)
    places = report.Places([machine], [config.site])
    return report.build(config, [here], places, ("tcp", "tcp"), [], advice.advice([here], [machine], ""))


def _together(config: Any, arguments: argparse.Namespace) -> dict[str, Any] | None:
    """The report on rank 0, None on the others."""
    from datetime import timedelta

    import torch.distributed as dist

    dist.init_process_group("fairring", timeout=timedelta(seconds=arguments.timeout))
    try:
        return _between_all(config, arguments)
    finally:
        dist.destroy_process_group()


def _between_all(config: Any, arguments: argparse.Namespace) -> dict[str, Any] | None:
    import torch
    import torch.distributed as dist

    from fairring import _core, facts, interfaces
    from fairring.check import advice, measure, report, saved_rows, system
    from fairring.cost_rows import write

    group: Any = dist.group.WORLD
    seen = _core.inspect(group._get_backend(torch.device("cpu")))
    rank, world = dist.get_rank(), dist.get_world_size()
    machines = [one["machine"] for one in seen["ranks"]] if seen else [config.machine or facts.machine()]
    sites = [one["site"] for one in seen["ranks"]] if seen else [config.site]
    choice = interfaces.choose(config, config.master_address, config.master_port)
    if seen:
        choice = replace(choice, addresses=_addresses(seen["ranks"][rank]), by=seen["ranks"][rank]["interfaces_by"])
    systems: list[Any] = [None] * world
    dist.all_gather_object(systems, system.describe(choice, peers=max(1, world - 1)))
    measured = measure.measure(machines, sites) if world > 1 else []
    together = measure.measure_call(report.CALL_BYTES) if world > 1 else None
    if rank != 0:
        return None
    (rail, site), refused = (seen["transports"], seen["rdma_refused"]) if seen else (("tcp", "tcp"), "")
    if arguments.save:
        where = f"on {len(set(machines))} machines, {world} ranks, between machines by {rail}, between sites by {site}"
        write(arguments.save, saved_rows.rows(measured, _core.built_in_rows(rail, site)), where)
    warnings = advice.advice(systems, machines, refused)
    places = report.Places(machines, sites)
    return report.build(config, systems, places, (rail, site), measured, warnings, together)


def _addresses(rank: dict[str, Any]) -> tuple[str, ...]:
    """The addresses of all interfaces that the rank uses."""
    return tuple(dict.fromkeys([*rank["addresses"], *rank["site_addresses"]]))
