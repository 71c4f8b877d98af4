"""Everything that was found, as one value for both outputs: JSON as it is, and the table for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairring.check.measure import Measured
from fairring.config import MIB, Config
from fairring.forecast import forecast, rows_of

CALL_BYTES = 25 * MIB  # DDP's bucket


def build(
    config: Config,
    systems: Sequence[dict[str, Any]],
    machines: Sequence[str],
    transport: str,
    measured: Sequence[Measured],
    warnings: Sequence[str],
) -> dict[str, Any]:
    """systems, machines: by rank. transport: between machines."""
    plan = forecast(config, machines, rows_of(config, transport), CALL_BYTES)[0]
    return {
        "settings": {
            "total_memory": config.total_memory,
            "slice_size": config.slice_size,
            "transport": config.transport,
            "cost_rows": config.cost_rows.digest() if config.cost_rows else "built in",
        },
        "machines": len(set(machines)),
        "transport": {"machine": "shared memory", "rail": transport if len(set(machines)) > 1 else None},
        "ranks": [
            {"rank": rank, "machine": machine, **system}
            for rank, (machine, system) in enumerate(zip(machines, systems, strict=True))
        ],
        "levels": [one.as_dict() for one in measured],
        "plan": {"bytes": CALL_BYTES, "in_flight": config.total_memory // plan["staging_bytes"], **plan},
        "warnings": list(warnings),
    }
