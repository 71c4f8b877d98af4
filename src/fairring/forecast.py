"""The planner's predictions under given settings, for commands that show them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairring.config import Config

if TYPE_CHECKING:
    from fairring import _core

BITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}

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
) -> list[dict[str, Any]]:
    """Every plan for a call, the best first, as the C++ module describes them.

    machines, sites: of each rank; no sites: all stand in one. flat: as if machines never stood in groups.
    """
    from fairring import _core

    question = plan_question(config, machines, rows, call_bytes, sites)
    question.flat = flat
    return _core.forecast(question)


def plan_question(
    config: Config, machines: Sequence[str], rows: Rows, call_bytes: int, sites: Sequence[str] = ()
) -> _core.PlanQuestion:
    """forecast()'s arguments in the form of the C++ module."""
    from fairring import _core

    question = _core.PlanQuestion()
    question.machines, question.sites = list(machines), list(sites)
    question.total_memory, question.slice_size = config.total_memory, config.slice_size
    question.rows = list(rows)
    question.bytes = call_bytes
    return question


def bytes_per_second(option: str, rate: str) -> float:
    """The rate of a text such as '100gbit'. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", rate.lower())
    bits = float(match[1]) * BITS[match[2]] if match else 0.0
    if not bits:
        raise ValueError(f"{option} {rate} is not a rate; write for instance 100mbit, 1gbit or 100gbit")
    return bits / 8


def at_rate(rows: Rows, rate: str, ranks: int) -> Rows:
    """The rows with each rank's share of a machine's link as bandwidth between machines. Raises ValueError."""
    share = bytes_per_second("--rate", rate) / ranks
    machine, rail, *others = rows
    return [machine, (*rail[:2], share, rail[3]), *others]
