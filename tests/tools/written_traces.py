"""Traces as the ranks of a job write them, and what can become of files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from random import Random
from typing import Any

from fairring.trace import command


def event(name: str, began: float, seconds: float, **arguments: Any) -> dict[str, Any]:
    """An event as a rank writes it. Times: seconds."""
    return {"ph": "X", "name": name, "pid": 0, "tid": 0, "ts": began * 1e6, "dur": seconds * 1e6, "args": arguments}


def written(rank: int, group: str = "0", world: int = 4, **other: Any) -> dict[str, Any]:
    """The trace of a rank that has made two calls, in a world of machines of two ranks."""
    peer = (rank + 2) % world
    of_slice = {"call": 1, "slice": 1, "level": 1, "peer": peer}
    moved = {**of_slice, "bytes": 1 << 20, "of": "RS1"}
    return {
        "otherData": {
            "group": group,
            "rank": rank,
            "machines": [f"machine{one // 2}" for one in range(world)],
            "hosts": [f"host{one // 2}" for one in range(world)],
            "sites": ["" for _ in range(world)],
            "staging_bytes": 1 << 20,
            "now_ns": 10**10,
            "unix_ns": 10**18,
            "clock_leads_ns": {str(peer): 1000},
            "packets": {str(peer): {"sent": 100, "again": 1}},
            "bytes_by_level": {"0": 7, "1": 8},
            "processor": {"ran_ns": 10**9, "waited_ns": 10**8},
            "error": "",
            "device_way": "",
            "seen": [{"by": rank, "rank": peer, "calls": 2, "last": "all_reduce", "silent_ns": 5 * 10**9}],
            "missing": [peer],
            "messages": [{"peer": peer, "sends": True, "tag": 7, "since_ns": 10**9}],
            "absent": [],
            "program": "train.py:57 in load",
            **other,
        },
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}},
            event("all_reduce", 1.0, 0.5, call=1, begun=1.1e6),
            event("all_reduce", 2.0 + 0.1 * rank, 0.9, call=2, begun=2.5e6),
            event("all_reduce", 4.0, 0.9, call=3, begun=4e6, open=True),
            event("RS1", 2.5, 0.2, **{**of_slice, "call": 2}, offered=2.6e6, heard=2.65e6, released=2.7e6),
            event("to rank 2", 1.1, 0.1, **moved, offered=1.15e6),
            event("from rank 2", 1.1, 0.2, **moved),
            event("waits for staging", 1.0, 0.05, call=1, slice=1, level=1, bytes=1 << 20),
        ],
    }


def write(directory: Path, *traces: dict[str, Any]) -> None:
    for one in traces:
        other = one["otherData"]
        (directory / f"{other['group']}-rank{other['rank']}.json").write_text(json.dumps(one))


def trace(*arguments: str) -> int:
    """The exit code of `fairring trace`."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    given = argparse.Namespace(parser=parser, command=[], subcommand="trace")
    return command.run(parser.parse_args(arguments, given))


VALUES: tuple[Any, ...] = (
    None,
    -1,
    0,
    7,
    10**30,
    1.5,
    float("nan"),
    float("inf"),
    "x",
    "",
    True,
    [],
    [1],
    {},
    {"a": 1},
)


def damaged(whole: Any, random: Random) -> Any:
    """The same JSON with another value, or nothing, in one place."""
    places: list[tuple[Any, Any]] = []

    def look(part: Any) -> None:
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            places.append((part, key))
            if isinstance(value, dict | list):
                look(value)

    whole = json.loads(json.dumps(whole))
    look(whole)
    part, key = random.choice(places)
    if random.random() < 0.2:
        del part[key]
    else:
        part[key] = random.choice(VALUES)
    return whole
