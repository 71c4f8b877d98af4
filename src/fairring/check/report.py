"""The report as one value for both outputs: JSON as it is, and the text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairring import by_level, facts, interfaces
from fairring.check import between, findings, gaps, installation, machine, network, trials, variables
from fairring.check.findings import Finding
from fairring.check.saved_rows import LARGE_BYTES, Measured
from fairring.config import MIB, Config, ConfigError
from fairring.cost_rows import LEVELS
from fairring.forecast import Rows, forecast, rows_of
from fairring.interfaces import Choice

CALL_BYTES = 25 * MIB  # DDP's bucket


def here(environment: Mapping[str, str], imports: Mapping[str, Any], reached: Choice | None) -> dict[str, Any]:
    """The facts of this rank's machine. imports: as of installation."""
    return {
        "versions": installation.versions(),
        **imports,
        "machine": machine.describe(),
        "network": network.describe(environment, reached),
        "variables": variables.in_force(environment),
        "settings": {"error": ""},
        "trials": None,
    }


def alone(environment: Mapping[str, str], seconds: float) -> dict[str, Any]:
    """seconds: how long the ranks of a trial wait for each other. Secret values are left out of all texts."""
    imports = installation.imports(environment)
    error, config = "", Config()
    try:
        config = Config.from_environment(environment)
    except ConfigError as wrong:
        error = str(wrong)
    one = {**here(environment, imports, _reached(config)), "settings": {"error": error}}
    works = not (error or imports["torch"]["error"] or imports["module"]["error"])
    one["trials"] = trials.run(environment, seconds) if works else []
    found = findings.of(one, config, environment)
    report = {"ranks": [{"rank": 0, **one}], "levels": [], "plan": None, "findings": [vars(each) for each in found]}
    cleaned: dict[str, Any] = variables.without_secrets(report, environment)
    return cleaned


def _reached(config: Config) -> Choice | None:
    """By the default route, since no name is looked up for it."""
    try:
        return interfaces.choose(config, facts.ELSEWHERE[0], 0)
    except ConfigError:
        return None


@dataclass(frozen=True)
class Seen:
    """The links of a job. machines, sites: of each rank. rail, site: transports between machines and between sites."""

    machines: Sequence[str]
    sites: Sequence[str]
    rail: str
    site: str
    rdma_refused: str
    measured: Sequence[Measured]
    seconds: float  # of a call of CALL_BYTES


def together(
    config: Config, heres: Sequence[Mapping[str, Any]], own: Sequence[Sequence[Finding]], seen: Seen
) -> dict[str, Any]:
    """heres, own: the facts of each rank's machine, and the findings on them."""
    rows = rows_of(config, seen.rail, seen.site)
    plan = forecast(config, seen.machines, rows, CALL_BYTES, seen.sites)[0]
    levels = [compared(config, one, rows) for one in seen.measured]
    of_machines, of_sites = len(set(seen.machines)), len(set(seen.sites))
    found = [
        *between.together(own),
        *between.of(heres, seen.machines, seen.rdma_refused),
        *gaps.gaps(levels, heres, seen.machines, saved=config.cost_rows is not None),
    ]
    return {
        "settings": {
            "total_memory": config.total_memory,
            "transport": by_level.describe(config.transports),
            "cost_rows": config.cost_rows.digest() if config.cost_rows else "built in",
        },
        "machines": of_machines,
        "sites": of_sites,
        "transport": {
            "machine": "shared memory",
            "rail": seen.rail if of_machines > of_sites else None,
            "site": seen.site if of_sites > 1 else None,
        },
        "ranks": [
            {"rank": rank, "on": seen.machines[rank], "site": seen.sites[rank], **one} for rank, one in enumerate(heres)
        ],
        "levels": levels,
        "plan": {
            "bytes": CALL_BYTES,
            "in_flight": config.total_memory // plan["staging_bytes"],
            "measured_seconds": seen.seconds,
            **plan,
        },
        "findings": [vars(each) for each in found],
    }


def compared(config: Config, one: Measured, rows: Rows) -> dict[str, Any]:
    """The measurement of a level, beside what the rows predict for it: seconds, and bytes/s of a rank each way."""
    level = LEVELS.index(one.level)
    ranks = [str(rank) for rank in range(one.ranks)]
    alone = ["0"] * one.ranks
    machines, sites = (alone, alone) if level == 0 else (ranks, alone if level == 1 else ranks)
    seconds = forecast(config, machines, rows, LARGE_BYTES, sites)[0]["seconds"]
    return {
        **vars(one),
        "predicted_seconds": seconds,
        "predicted_bytes_per_second": rows[min(level, len(rows) - 1)][2],
    }
