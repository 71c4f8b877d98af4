"""Reads the traces of ranks, as csrc/group/trace.cc writes them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairring.trace.records import (
    NANO,
    Call,
    MessageWait,
    RankTrace,
    Receive,
    Send,
    Sighting,
    StagingWait,
    Step,
    TraceError,
)

MICRO = 1e-6


def parse(text: str, source: str = "a trace") -> RankTrace:
    """Raises TraceError if the text is no trace of one rank."""
    try:
        trace = _from_json(json.loads(text))
        _refuse_misfits(trace)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise TraceError(f"{source} is no trace of a rank of Fairring's ({type(error).__name__}: {error})") from error
    return trace


def _refuse_misfits(trace: RankTrace) -> None:
    """Raises ValueError for ranks and machines that are not in the group."""
    world = len(trace.machines)
    if len(trace.hosts) != world:
        raise ValueError(f"{world} machines and {len(trace.hosts)} hosts")
    moved = [one.peer for one in trace.sends] + [one.peer for one in trace.receives]
    waited = [one.peer for one in trace.steps] + [one.peer for one in trace.messages]
    seen = [rank for one in trace.seen for rank in (one.by, one.rank)]
    for rank in (trace.rank, *trace.leads, *trace.packets, *trace.missing, *trace.absent, *seen, *moved, *waited):
        if rank is not None and rank not in range(world):
            raise ValueError(f"rank {rank} of {world}")
    if trace.weights and (len(trace.weights) != len(set(trace.machines)) or not sum(trace.weights) > 0):
        raise ValueError(f"weights {trace.weights} of {len(set(trace.machines))} machines")


def load(directory: Path) -> dict[str, list[RankTrace]]:
    """All traces of a directory, by group, each in the order of ranks. Raises TraceError if there is none.

    Traces that an earlier job, or the group before its members changed, has left there are passed over: those whose
    number of ranks is not that of the newest trace.
    """
    groups: dict[str, list[RankTrace]] = defaultdict(list)
    for path in sorted(directory.glob("*-rank*.json")):
        one = parse(path.read_text(errors="replace"), str(path))
        groups[one.group].append(one)
    if not groups:
        raise TraceError(
            f"{directory} has no trace; run the job with FAIRRING_TRACE={directory}: ranks write theirs when a group "
            "ends, and when `fairring why` asks for them"
        )
    return {name: of_newest(ranks) for name, ranks in groups.items()}


def of_newest(traces: Iterable[RankTrace]) -> list[RankTrace]:
    """Those of the newest one's number of ranks, in the order of ranks."""
    ranks = sorted(traces, key=lambda one: one.rank)
    newest = max(ranks, key=lambda one: one.unix_now)
    return [one for one in ranks if len(one.machines) == len(newest.machines)]


def largest(groups: dict[str, list[RankTrace]], name: str | None) -> list[RankTrace]:
    """The group of that name, or the one with the most calls. Raises TraceError."""
    if name is None:
        return max(groups.values(), key=lambda ranks: sum(len(one.calls) for one in ranks))
    if name not in groups:
        raise TraceError(f"no trace of a group {name}; there are: {', '.join(sorted(groups))}")
    return groups[name]


def _from_json(trace: dict[str, Any]) -> RankTrace:
    other = trace["otherData"]
    ran, waited = (other["processor"][name] for name in ("ran_ns", "waited_ns"))
    records = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    calls = [_call(event) for event in records if "slice" not in event["args"]]
    slices = [event for event in records if "slice" in event["args"]]
    sends = [event for event in slices if event["name"].startswith("to rank")]
    receives = [event for event in slices if event["name"].startswith("from rank")]
    waits = [event for event in slices if event["name"] == "waits for staging"]
    return RankTrace(
        rank=other["rank"],
        group=other["group"],
        machines=tuple(other["machines"]),
        hosts=tuple(other["hosts"]),
        leads={int(peer): lead * NANO for peer, lead in other["clock_leads_ns"].items()},
        packets={int(peer): (one["sent"], one["again"]) for peer, one in other["packets"].items()},
        staging_bytes=other["staging_bytes"],
        now=other["now_ns"] * NANO,
        unix_now=other["unix_ns"] * NANO,
        bytes_by_level={int(level): count for level, count in other["bytes_by_level"].items()},
        ran=ran * NANO,
        queued=waited * NANO,
        error=other["error"],
        calls={call.number: call for call in calls},
        steps=tuple(_steps(slices)),
        sends=tuple(_send(event) for event in sends),
        receives=tuple(_receive(event) for event in receives),
        staging=tuple(_staging(event) for event in waits),
        seen=tuple(_sighting(one) for one in other["seen"]),
        missing=tuple(other["missing"]),
        messages=tuple(
            MessageWait(one.get("peer"), one["sends"], one["tag"], one["since_ns"] * NANO) for one in other["messages"]
        ),
        absent=tuple(other["absent"]),
        program=other["program"],
        weights=tuple(other["weights"]),
    )


def _sighting(one: dict[str, Any]) -> Sighting:
    silent = one.get("silent_ns", 0) * NANO
    return Sighting(one["by"], one["rank"], one.get("calls"), one.get("last", ""), silent)


def _end(event: dict[str, Any]) -> float:
    return float((event["ts"] + event["dur"]) * MICRO)


def _call(event: dict[str, Any]) -> Call:
    args = event["args"]
    ended = None if "open" in args else _end(event)
    return Call(
        args["call"], event["name"], event["ts"] * MICRO, args["begun"] * MICRO, ended, args.get("failed", False)
    )


def _steps(events: Iterable[dict[str, Any]]) -> Iterable[Step]:
    for event in events:
        args = event["args"]
        if event["name"].startswith(("to rank", "from rank")) or event["name"] == "waits for staging":
            continue
        began = event["ts"] * MICRO
        times = [args.get(name, 0) * MICRO for name in ("offered", "heard", "released")]
        ready = None if "open" in args else _end(event)
        yield Step(
            call=args["call"],
            slice=args["slice"],
            verb=event["name"],
            level=args["level"],
            peer=args.get("peer"),
            began=began,
            offered=times[0] or began,
            heard=times[1],
            ready=ready,
            released=times[2],
        )


def _send(event: dict[str, Any]) -> Send:
    args = event["args"]
    times = (event["ts"] * MICRO, args["offered"] * MICRO)
    return Send(args["call"], args["slice"], args["of"], args["level"], args["peer"], args["bytes"], *times)


def _receive(event: dict[str, Any]) -> Receive:
    args = event["args"]
    return Receive(args["call"], args["slice"], args["of"], args["peer"], args["bytes"], _end(event))


def _staging(event: dict[str, Any]) -> StagingWait:
    args = event["args"]
    return StagingWait(args["call"], args["slice"], args["bytes"], event["ts"] * MICRO, _end(event))
