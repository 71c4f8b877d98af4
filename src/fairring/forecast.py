"""The planner's predictions under given settings, for commands that show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairring.config import Config
from fairring.lab.cluster import bits_per_second

Rows = Sequence[tuple[float, float, float, float]]


def rows_of(config: Config, rail: str, site: str = "tcp") -> Rows:
    """The cost rows by level: from the file that the settings name, or the built-in ones for the transports."""
    from fairring import _core

    return config.cost_rows.by_level() if config.cost_rows else _core.built_in_rows(rail, site)


def forecast(
    config: Config,
    machines: Sequence[str],
    rows: Rows,
    call_bytes: int,
    sites: Sequence[str] = (),
    *,
    flat: bool = False,
    site_format: str = "",
) -> list[dict[str, Any]]:
    """Every plan for a call, the best first, as the C++ module describes them.

    machines, sites: of each rank; no sites: all stand in one. flat: as if machines never stood in groups. site_format:
    in which it crosses between sites. Raises ValueError.
    """
    from fairring import _core

    question = _core.PlanQuestion()
    question.machines, question.sites = list(machines), list(sites)
    question.total_memory, question.slice_size = config.total_memory, config.slice_size
    question.rows, question.bytes, question.flat = list(rows), call_bytes, flat
    question.site_format = site_format
    return _core.forecast(question)


def at_rate(rows: Rows, rate: str, ranks: int) -> Rows:
    """The rows with each rank's share of a machine's link as bandwidth between machines. Raises LabError."""
    share = bits_per_second(rate) / 8 / ranks
    machine, rail, *others = rows
    return [machine, (*rail[:2], share, rail[3]), *others]
