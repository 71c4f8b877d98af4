"""The traces of torch.profiler, as export_chrome_trace writes them: as JSON, or gzipped if their name ends in .gz."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairring.trace.records import NANO, TraceError

_ARROW_BITS = 32  # of the ids of one file's arrows


@dataclass(frozen=True)
class ProfilerTrace:
    """A rank's events, whose times are microseconds after `date`: seconds since 1970, by its machine."""

    path: Path
    rank: int
    date: float
    events: list[dict[str, Any]]


def read(path: Path) -> ProfilerTrace:
    """Raises TraceError if the file is no trace of torch.profiler, or of a process that had no process group."""
    try:
        content = path.read_bytes()
        whole = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
        rank, date = whole["distributedInfo"]["rank"], whole.get("baseTimeNanoseconds", 0) * NANO
        if type(rank) is not int or not math.isfinite(date):
            raise ValueError(f"rank {rank!r}, base {date} s")
        return ProfilerTrace(path, rank, date, list(_of_processes(whole["traceEvents"])))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise TraceError(
            f"{path} is no trace that torch.profiler has written while there was a process group "
            f"({type(error).__name__}: {error})"
        ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"{path} is not wholly gzipped, though its name ends in .gz: {error}") from error


def _of_processes(events: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Without the profiler's own marks, which belong to no process, and the order in which it lists processes."""
    for event in events:
        kind, name, pid, args = event["ph"], event["name"], event["pid"], event.get("args", {})
        if type(pid) is not int or name == "process_sort_index":
            continue
        if not isinstance(args, dict):
            raise TypeError(f"args {args!r}")
        if kind == "M":
            yield {"ph": kind, "name": name, "pid": pid, "tid": event["tid"], "args": args}
        elif math.isfinite(event["ts"]):
            yield event
        else:
            raise ValueError(f"ts {event['ts']}")


def beside(ranks: int, traces: Sequence[ProfilerTrace]) -> Iterable[tuple[ProfilerTrace, list[dict[str, Any]]]]:
    """The traces' events, with processes numbered from `ranks` on and named with their rank, and arrows numbered by
    their file. So those of different files keep apart."""
    processes: dict[tuple[int, int], int] = {}
    for file, trace in enumerate(traces):
        events = []
        for event in trace.events:
            moved = {**event, "pid": processes.setdefault((trace.rank, event["pid"]), ranks + len(processes))}
            if isinstance(event.get("id"), int):
                moved["id"] = file << _ARROW_BITS | event["id"]
            if event["ph"] == "M" and event["name"] == "process_name":
                moved["args"] = {"name": f"rank {trace.rank}: {event['args'].get('name')}"}
            events.append(moved)
        yield trace, events
