"""The records of one rank. Times are seconds of its machine's steady clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

NANO = 1e-9
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
    """The records of one rank in one group. machines, hosts, sites: the name for each rank of the group.

    leads: by peer, in seconds, as PeerProgress::clockLeads() has them. packets: TCP packets to each rail peer, sent and
    retransmitted. bytes_by_level: bytes sent, or, on the machine, bytes read. ran, queued: seconds that its threads ran
    on a processor, and seconds that they were runnable but had none.
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
    device_way: str = ""  # who has the calls on CUDA tensors, and why
    sites: tuple[str, ...] = ()  # empty: one

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
    def clock_zero(self) -> float:
        """When its machine's clock showed 0, in seconds since 1970 by its machine's date."""
        return self.unix_now - self.now

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
