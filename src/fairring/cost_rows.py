"""The planner's cost rows as a file, which `fairring check --save` writes and FAIRRING_COST_ROWS names.

One row per level: seconds of latency per step, seconds per further message, bytes per second of a rank each way, bytes
of input summed per second. The third level, of sites, may be missing: it then has the rails' row.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = "fairring cost rows 1"
LEVELS = ("machine", "rail", "site")
FIELDS = ("latency_seconds", "per_message_seconds", "bytes_per_second", "summed_bytes_per_second")

Row = tuple[float, float, float, float]


@dataclass(frozen=True)
class CostRows:
    """By level: machine, rail, and site if it was measured."""

    rows: tuple[Row, ...]

    def by_level(self) -> list[Row]:
        """As the C++ module takes them."""
        return [*self.rows, self.rows[-1]][: len(LEVELS)]

    def digest(self) -> str:
        """Equal if and only if the rows are: for the comparison between ranks."""
        return hashlib.sha256(repr(self.rows).encode()).hexdigest()[:12]


def write(path: Path, rows: Sequence[Row], measured: str) -> None:
    """measured: where and when, for people."""
    levels = {level: dict(zip(FIELDS, row, strict=True)) for level, row in zip(LEVELS, rows, strict=False)}
    path.write_text(json.dumps({"format": FORMAT, "measured": measured, "levels": levels}, indent=2) + "\n")


def read(path: Path) -> CostRows:
    """Raises OSError if the file can't be read, ValueError if it holds no cost rows."""
    content = json.loads(path.read_text())
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f'it does not begin with "format": "{FORMAT}"')
    levels = content.get("levels")
    levels = levels if isinstance(levels, dict) else {}
    rows = []
    for level in LEVELS:
        if level == LEVELS[-1] and level not in levels:
            continue
        found = levels.get(level)
        numbers: list[Any] = [found.get(field) if isinstance(found, dict) else None for field in FIELDS]
        if not all(isinstance(number, int | float) and math.isfinite(number) and number >= 0 for number in numbers):
            raise ValueError(f"level {level!r} needs these numbers, none below 0: {', '.join(FIELDS)}")
        if 0 in numbers[2:]:
            raise ValueError(f"level {level!r} has a speed of 0")
        rows.append((numbers[0], numbers[1], numbers[2], numbers[3]))
    return CostRows(tuple(rows))
