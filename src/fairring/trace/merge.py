"""The traces of all ranks as one, for Perfetto (https://ui.perfetto.dev) or chrome://tracing.

Times are microseconds after the file's baseTimeNanoseconds, which is the date of its first second by the first rank's
machine. Floating-point numbers hold no date to the nanosecond, and steps that follow each other would overlap.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairring.trace.clock import offsets
from fairring.trace.files import MICRO, of_newest, parse

_TIMES_IN_ARGS = ("offered", "heard", "released", "begun")


def merge(paths: Sequence[Path]) -> dict[str, Any]:
    """paths: of one group's ranks; those of other numbers of ranks than the newest are left out.

    Raises TraceError if a path is no trace.
    """
    texts = [path.read_text(errors="replace") for path in paths]
    ranks = of_newest(parse(text, str(path)) for text, path in zip(texts, paths, strict=True))
    moves = offsets(ranks)
    dates = {rank: ranks[0].clock_zero + move.seconds for rank, move in moves.items()}  # of each clock's zero
    parts: list[tuple[float, list[dict[str, Any]]]] = []
    for trace in map(json.loads, texts):
        if len(trace["otherData"]["machines"]) == len(ranks[0].machines):
            events = [event for event in trace["traceEvents"] if event["ph"] in ("M", "X")]
            parts.append((dates[trace["otherData"]["rank"]], events))
    timed = (date + event["ts"] * MICRO for date, events in parts for event in events if event["ph"] != "M")
    base = math.floor(min(timed, default=0.0))
    return {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base * 10**9,
        "otherData": {"clock_error_seconds": {str(rank): move.error for rank, move in moves.items()}},
        "traceEvents": [_moved(event, (date - base) / MICRO) for date, events in parts for event in events],
    }


def _moved(event: dict[str, Any], micros: float) -> dict[str, Any]:
    if event["ph"] == "M":
        return event
    args = event.get("args", {})
    args = {name: value + micros if name in _TIMES_IN_ARGS else value for name, value in args.items()}
    return {**event, "ts": event["ts"] + micros, "args": args}
