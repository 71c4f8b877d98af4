"""The report as one value for both outputs: JSON as it is, and the table for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairring import by_level
from fairring.check import gaps
from fairring.check.measure import LARGE_BYTES, Measured
from fairring.config import MIB, Config
from fairring.cost_rows import LEVELS
from fairring.forecast import Rows, forecast, rows_of


@dataclass(frozen=True)
class Places:
    """The names of the machine and the site of each rank."""

    machines: Sequence[str]
    sites: Sequence[str]


CALL_BYTES = 25 * MIB  # DDP's bucket


def build(
    config: Config,
    systems: Sequence[dict[str, Any]],
    places: Places,
    transports: tuple[str, str],
    measured: Sequence[Measured],
    warnings: Sequence[str],
    measured_seconds: float | None = None,
) -> dict[str, Any]:
    """systems: by rank. transports: between machines, between sites. measured_seconds: of a call of CALL_BYTES."""
    rail, site = transports
    rows = rows_of(config, rail, site)
    plan = forecast(config, places.machines, rows, CALL_BYTES, places.sites)[0]
    levels = [compared(config, one, rows) for one in measured]
    return {
        "settings": {
            "total_memory": config.total_memory,
            "slice_size": config.slice_size,
            "transport": by_level.describe(config.transports),
            "cost_rows": config.cost_rows.digest() if config.cost_rows else "built in",
        },
        "machines": len(set(places.machines)),
        "sites": len(set(places.sites)),
        "transport": {
            "machine": "shared memory",
            "rail": rail if len(set(places.machines)) > len(set(places.sites)) else None,
            "site": site if len(set(places.sites)) > 1 else None,
        },
        "ranks": [
            {"rank": rank, "machine": places.machines[rank], "site": places.sites[rank], **system}
            for rank, system in enumerate(systems)
        ],
        "levels": levels,
        "plan": {
            "bytes": CALL_BYTES,
            "in_flight": config.total_memory // plan["staging_bytes"],
            "measured_seconds": measured_seconds,
            **plan,
        },
        "warnings": [*warnings, *gaps.gaps(levels, systems, places.machines, saved=config.cost_rows is not None)],
    }


def compared(config: Config, one: Measured, rows: Rows) -> dict[str, Any]:
    """The measurement of a level, beside what the rows predict for it: seconds, and bytes/s of a rank each way."""
    level = LEVELS.index(one.level)
    ranks = [str(rank) for rank in range(one.ranks)]
    alone = ["0"] * one.ranks
    machines, sites = (alone, alone) if level == 0 else (ranks, alone if level == 1 else ranks)
    seconds = forecast(config, machines, rows, LARGE_BYTES, sites)[0]["seconds"]
    return {
        **one.as_dict(),
        "predicted_seconds": seconds,
        "predicted_bytes_per_second": rows[min(level, len(rows) - 1)][2],
    }
