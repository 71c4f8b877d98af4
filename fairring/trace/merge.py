"""The traces of all ranks as one, for Perfetto (https://ui.perfetto.dev) or chrome://tracing.

Times are those of the date, as in the traces of torch.profiler, by the first rank's machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairring.trace.clock import offsets
from fairring.trace.files import of_newest, parse

_TIMES_IN_ARGS = ("offered", "heard", "released", "begun")


def merge(paths: Sequence[Path]) -> dict[str, Any]:
    """paths: of one group's ranks; those of other numbers of ranks than the newest are left out. Raises TraceError if
    one is no trace."""
    texts = [path.read_text(errors="replace") for path in paths]
    ranks = of_newest(parse(text, str(path)) for text, path in zip(texts, paths, strict=True))
    moves = offsets(ranks)
    to_date = ranks[0].unix_now - ranks[0].now
    events: list[dict[str, Any]] = []
    for trace in map(json.loads, texts):
        if len(trace["otherData"]["machines"]) != len(ranks[0].machines):
            continue
        move = moves[trace["otherData"]["rank"]].seconds + to_date
        events += [_moved(event, move * 1e6) for event in trace["traceEvents"]]
    errors = {str(rank): move.error for rank, move in moves.items()}
    return {"displayTimeUnit": "ms", "otherData": {"clock_error_seconds": errors}, "traceEvents": events}


def _moved(event: dict[str, Any], micros: float) -> dict[str, Any]:
    if event["ph"] != "X":
        return event
    args = {name: value + micros if name in _TIMES_IN_ARGS else value for name, value in event["args"].items()}
    return {**event, "ts": event["ts"] + micros, "args": args}
