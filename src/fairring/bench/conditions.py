"""The conditions of a measurement: what a reader needs to judge the figures, and to reproduce them."""

from __future__ import annotations

import argparse
import os
import shlex
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fairring.bench.placement import Placement, describe
from fairring.check.system import processor

CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def here() -> dict[str, Any]:
    """The conditions on this rank's machine."""
    return {
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": list(os.getloadavg()),
        "congestion_control": CONGESTION.read_text().strip() if CONGESTION.exists() else None,
    }


def conditions(
    arguments: argparse.Namespace, places: list[Placement], machines: list[dict[str, Any]]
) -> dict[str, Any]:
    """machines: here()'s result for one rank of each. load: waiting processes, over 1, 5 and 15 minutes."""
    from fairring.check.system import versions

    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["fairring", *arguments.words]),
        "layout": describe(places),
        "ranks_of_machines": [sum(p.machine == m for p in places) for m in sorted({p.machine for p in places})],
        "machines": machines,
        "versions": versions(),
        "settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith("FAIRRING_")},
    }


def heading(facts: dict[str, Any]) -> list[str]:
    """The lines above a table."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    first = facts["machines"][0]
    settings = " ".join(f"{name}={value}" for name, value in facts["settings"].items()) or "default settings"
    return [
        f"{facts['layout']}; {settings}",
        f"{versions}; {first['cores']} cores on rank 0's machine ({first['cpu']}), load {first['load'][0]:.1f}, "
        f"TCP by {first['congestion_control']}",
    ]
