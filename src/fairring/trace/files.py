"""Reads the traces of ranks, as csrc/group/trace.cc writes them."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
    if len(trace.sites) != world:
        raise ValueError(f"{world} machines and {len(trace.sites)} sites")
    moved = [one.peer for one in trace.sends] + [one.peer for one in trace.receives]
    waited = [one.peer for one in trace.steps] + [one.peer for one in trace.messages]
    seen = [rank for one in trace.seen for rank in (one.by, one.rank)]
    for rank in (trace.rank, *trace.leads, *trace.packets, *trace.missing, *trace.absent, *seen, *moved, *waited):
        if rank is not None and rank not in range(world):
            raise ValueError(f"rank {rank} of {world}")


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


def largest(groups: Mapping[str, Sequence[RankTrace]], name: str | None) -> Sequence[RankTrace]:
    """The group of that name, or the one with the most calls. Raises TraceError."""
    if name is None:
        return max(groups.values(), key=lambda ranks: sum(len(one.calls) for one in ranks))
    if name not in groups:
        raise TraceError(f"no trace of a group {name}; there are: {', '.join(sorted(groups))}")
    return groups[name]


def _from_json(trace: dict[str, Any]) -> RankTrace:
    other = trace["otherData"]
    processor = other["processor"]
    records = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    calls = [_call(event) for event in records if "slice" not in event["args"]]
    slices = [event for event in records if "slice" in event["args"]]
    sends = [event for event in slices if event["name"].startswith("to rank")]
    receives = [event for event in slices if event["name"].startswith("from rank")]
    waits = [event for event in slices if event["name"] == "waits for staging"]
    return RankTrace(
        rank=_whole(other["rank"]),
        group=_text(other["group"]),
        machines=tuple(map(_text, other["machines"])),
        hosts=tuple(map(_text, other["hosts"])),
        leads={int(peer): _seconds(lead, NANO) for peer, lead in other["clock_leads_ns"].items()},
        packets={int(peer): (_whole(one["sent"]), _whole(one["again"])) for peer, one in other["packets"].items()},
        staging_bytes=_whole(other["staging_bytes"]),
        now=_seconds(other["now_ns"], NANO),
        unix_now=_seconds(other["unix_ns"], NANO),
        bytes_by_level={int(level): _whole(count) for level, count in other["bytes_by_level"].items()},
        ran=_seconds(processor["ran_ns"], NANO),
        queued=_seconds(processor["waited_ns"], NANO),
        error=_text(other["error"]),
        device_way=_text(other["device_way"]),
        calls={call.number: call for call in calls},
        steps=tuple(_steps(slices)),
        sends=tuple(_send(event) for event in sends),
        receives=tuple(_receive(event) for event in receives),
        staging=tuple(_staging(event) for event in waits),
        seen=tuple(_sighting(one) for one in other["seen"]),
        missing=tuple(map(_whole, other["missing"])),
        messages=tuple(_message(one) for one in other["messages"]),
        absent=tuple(map(_whole, other["absent"])),
        program=_text(other["program"]),
        sites=tuple(map(_text, other["sites"])),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int:  # a bool is an int
        raise TypeError(f"{value!r} is no whole number")
    return value


def _seconds(value: Any, unit: float) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"{value!r} is no time")
    return float(value * unit)


def _sighting(one: dict[str, Any]) -> Sighting:
    calls = _whole(one["calls"]) if "calls" in one else None
    silent = _seconds(one.get("silent_ns", 0), NANO)
    return Sighting(_whole(one["by"]), _whole(one["rank"]), calls, _text(one.get("last", "")), silent)


def _message(one: dict[str, Any]) -> MessageWait:
    return MessageWait(_peer(one), bool(one["sends"]), _whole(one["tag"]), _seconds(one["since_ns"], NANO))


def _peer(args: dict[str, Any]) -> int | None:
    return _whole(args["peer"]) if "peer" in args else None


def _began(event: dict[str, Any]) -> float:
    return _seconds(event["ts"], MICRO)


def _end(event: dict[str, Any]) -> float:
    return _began(event) + _seconds(event["dur"], MICRO)


def _call(event: dict[str, Any]) -> Call:
    args = event["args"]
    ended = None if "open" in args else _end(event)
    return Call(
        number=_whole(args["call"]),
        title=_text(event["name"]),
        submitted=_began(event),
        begun=_seconds(args["begun"], MICRO),
        ended=ended,
        failed="failed" in args,
    )


def _steps(events: Iterable[dict[str, Any]]) -> Iterable[Step]:
    for event in events:
        args = event["args"]
        if event["name"].startswith(("to rank", "from rank")) or event["name"] == "waits for staging":
            continue
        began = _began(event)
        offered, heard, released = (_seconds(args.get(name, 0), MICRO) for name in ("offered", "heard", "released"))
        yield Step(
            call=_whole(args["call"]),
            slice=_whole(args["slice"]),
            verb=event["name"],
            level=_whole(args["level"]),
            peer=_peer(args),
            began=began,
            offered=offered or began,
            heard=heard,
            ready=None if "open" in args else _end(event),
            released=released,
        )


def _send(event: dict[str, Any]) -> Send:
    args = event["args"]
    times = (_began(event), _seconds(args["offered"], MICRO))
    return Send(*_slice(args), _text(args["of"]), _whole(args["level"]), *_moved(args), *times)


def _receive(event: dict[str, Any]) -> Receive:
    args = event["args"]
    return Receive(*_slice(args), _text(args["of"]), *_moved(args), _end(event))


def _slice(args: dict[str, Any]) -> tuple[int, int]:
    return _whole(args["call"]), _whole(args["slice"])


def _moved(args: dict[str, Any]) -> tuple[int, int]:
    return _whole(args["peer"]), _whole(args["bytes"])


def _staging(event: dict[str, Any]) -> StagingWait:
    args = event["args"]
    return StagingWait(*_slice(args), _whole(args["bytes"]), _began(event), _end(event))
