"""What the planner predicts with some settings, for commands that show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairring.config import Config

Rows = Sequence[tuple[float, float, float, float]]


def rows_of(config: Config, transport: str) -> Rows:
    """The cost rows by level: of the file that the settings name, or those that are built in for the transport."""
    from fairring import _core

    return config.cost_rows.by_level() if config.cost_rows else _core.built_in_rows(transport)


def forecast(config: Config, machines: Sequence[str], rows: Rows, call_bytes: int) -> list[dict[str, Any]]:
    """Every plan for a call, the best first, as the C++ module describes them. machines: of each rank."""
    from fairring import _core

    question = _core.PlanQuestion()
    question.machines = list(machines)
    question.total_memory, question.slice_size = config.total_memory, config.slice_size
    question.rows = list(rows)
    question.bytes = call_bytes
    return _core.forecast(question)
