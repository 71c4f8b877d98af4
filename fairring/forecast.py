"""What the planner predicts with some settings, for commands that show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairring.config import Config

Rows = Sequence[tuple[float, float, float, float]]


def rows_of(config: Config, rail: str, site: str = "tcp") -> Rows:
    """The cost rows by level: of the file that the settings name, or those that are built in for the transports."""
    from fairring import _core

    return config.cost_rows.by_level() if config.cost_rows else _core.built_in_rows(rail, site)


def forecast(
    config: Config, machines: Sequence[str], rows: Rows, call_bytes: int, sites: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Every plan for a call, the best first, as the C++ module describes them.

    machines, sites: of each rank; no sites: all stand in one.
    """
    from fairring import _core

    question = _core.PlanQuestion()
    question.machines, question.sites = list(machines), list(sites)
    question.total_memory, question.slice_size = config.total_memory, config.slice_size
    question.rows = list(rows)
    question.bytes = call_bytes
    return _core.forecast(question)
