"""The report as one value for both outputs: JSON as it is, and the table for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairring import by_level
from fairring.check.measure import Measured
from fairring.config import MIB, Config
from fairring.forecast import forecast, rows_of


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
) -> dict[str, Any]:
    """systems: by rank. transports: between machines, between sites."""
    rail, site = transports
    plan = forecast(config, places.machines, rows_of(config, rail, site), CALL_BYTES, places.sites)[0]
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
        "levels": [one.as_dict() for one in measured],
        "plan": {"bytes": CALL_BYTES, "in_flight": config.total_memory // plan["staging_bytes"], **plan},
        "warnings": list(warnings),
    }
