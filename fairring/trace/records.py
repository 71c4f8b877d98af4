"""The records of one rank, as csrc/group/trace.cc writes them. Times are seconds of its machine's steady clock."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

MICRO, NANO = 1e-6, 1e-9
MACHINE_LEVEL = 0


class TraceError(Exception):
    """A trace that can't be read or does not fit the others; the text names the file and the remedy."""


@dataclass(frozen=True)
class Call:
    """number: the same on all ranks. ended: None while it is under way."""

    number: int
    title: str
    submitted: float
    begun: float
    ended: float | None
    failed: bool


@dataclass(frozen=True)
class Step:
    """A step of a slice's plan, such as "RS1". peer: the last one waited for. ready: None while it is under way."""

    call: int
    slice: int
    verb: str
    level: int
    peer: int | None
    began: float
    offered: float
    heard: float
    ready: float | None
    released: float

    @property
    def waited(self) -> bool:
        """Whether a peer's data came after this rank was done with its own part."""
        return self.peer is not None and self.heard > self.offered


@dataclass(frozen=True)
class Send:
    """Large messages of a step to one peer: ready to go, and sent when the peer had granted its memory."""

    call: int
    slice: int
    verb: str
    level: int
    peer: int
    bytes: int
    wanted: float
    went: float


@dataclass(frozen=True)
class Receive:
    """A large message of a step: all of it was here at `arrived`."""

    call: int
    slice: int
    verb: str
    peer: int
    bytes: int
    arrived: float


@dataclass(frozen=True)
class StagingWait:
    """A slice that waited for memory of `bytes`."""

    call: int
    slice: int
    bytes: int
    began: float
    ended: float


@dataclass(frozen=True)
class Sighting:
    """The last report that rank `by` has of another: calls made, the last one's title, seconds since its heartbeat."""

    by: int
    rank: int
    calls: int | None
    last: str
    silent: float


@dataclass(frozen=True)
class MessageWait:
    """A message or its receive that a rank waits for. peer: None: any rank."""

    peer: int | None
    sends: bool
    tag: int
    since: float


@dataclass(frozen=True)
class RankTrace:
    """The records of one rank in one group. machines, hosts: the name for each rank of the group.

    leads: by peer, in seconds, as PeerProgress::clockLeads() has them. packets: TCP packets to each rail peer, sent and
    retransmitted. bytes_by_level: bytes sent, or, on the machine, bytes read. ran, queued: seconds that its threads ran
    on a processor, and seconds that they were runnable but had none. weights: of each machine's
    shards of large all-reduces when this was written, in the order of lowest ranks; none: they are equal.
    """

    rank: int
    group: str
    machines: tuple[str, ...]
    hosts: tuple[str, ...]
    leads: dict[int, float]
    packets: dict[int, tuple[int, int]]
    staging_bytes: int
    now: float
    unix_now: float
    bytes_by_level: dict[int, int]
    ran: float
    queued: float
    error: str
    calls: dict[int, Call] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    sends: tuple[Send, ...] = ()
    receives: tuple[Receive, ...] = ()
    staging: tuple[StagingWait, ...] = ()
    seen: tuple[Sighting, ...] = ()
    missing: tuple[int, ...] = ()  # ranks from which the calls under way need something
    messages: tuple[MessageWait, ...] = ()
    absent: tuple[int, ...] = ()  # ranks that have not made the group
    program: str = ""  # where the main thread stands
    weights: tuple[int, ...] = ()

    def who(self, rank: int) -> str:
        """A rank for people, with its host if that is known."""
        return f"rank {rank} ({self.hosts[rank]})" if self.hosts[rank] else f"rank {rank}"

    def title(self, machine: str) -> str:
        """A machine for people: its host, or its number if several machines have a host's name, as in a lab."""
        hosts = dict(zip(self.machines, self.hosts, strict=True))
        if hosts[machine] and list(hosts.values()).count(hosts[machine]) == 1:
            return f"machine {hosts[machine]}"
        return f"machine {list(hosts).index(machine)}"

    @property
    def queued_share(self) -> float:
        """The share of the processor time its threads wanted that they spent queued."""
        return self.queued / max(self.ran + self.queued, NANO)

    def shifted(self, seconds: float) -> RankTrace:
        """The same trace on a clock that is ahead by that much."""

        def moved(record: Any, *names: str) -> Any:
            times = {name: getattr(record, name) for name in names}
            return replace(record, **{name: time + seconds if time else time for name, time in times.items()})

        return replace(
            self,
            now=self.now + seconds,
            calls={number: moved(call, "submitted", "begun", "ended") for number, call in self.calls.items()},
            steps=tuple(moved(step, "began", "offered", "heard", "ready", "released") for step in self.steps),
            sends=tuple(moved(send, "wanted", "went") for send in self.sends),
            receives=tuple(moved(one, "arrived") for one in self.receives),
            staging=tuple(moved(wait, "began", "ended") for wait in self.staging),
            messages=tuple(moved(wait, "since") for wait in self.messages),
        )


def parse(text: str, source: str = "a trace") -> RankTrace:
    """Raises TraceError if the text is no trace of one rank."""
    try:
        return _from_json(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(f"{source} is no trace of a rank of Fairring's ({type(error).__name__}: {error})") from error


def load(directory: Path) -> dict[str, list[RankTrace]]:
    """All traces of a directory, by group, each in the order of ranks. Raises TraceError if there is none."""
    groups: dict[str, list[RankTrace]] = defaultdict(list)
    for path in sorted(directory.glob("*-rank*.json")):
        one = parse(path.read_text(errors="replace"), str(path))
        groups[one.group].append(one)
    if not groups:
        raise TraceError(
            f"{directory} has no trace; run the job with FAIRRING_TRACE={directory}: ranks write theirs when a group "
            "ends, and when `fairring why` asks for them"
        )
    return {name: sorted(ranks, key=lambda one: one.rank) for name, ranks in groups.items()}


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
