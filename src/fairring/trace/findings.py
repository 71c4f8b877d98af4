"""The causes that made a job slow: the ranks, machines and links that cost a tenth of its time or more, worst first."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fairring.trace.blame import Blame, CallBlame, Link, dearest

LEAST_SHARE = 0.1  # share of the time from which a cause is named
_SLOW = 0.6  # of its siblings' rate
_MUCH_LOST = 0.003  # share of packets
_LOSSY = 0.01  # more than a full queue loses
_TIMES_LOST = 3.0  # times the packets that others lose
_QUEUED = 0.2  # a rank whose core is taken waits for this share of the processor time that it wants
_TWICE = 2.0
_SLOW_CORE = 3.0  # times as long as others' sums
_MORE = 1.5  # times the share that any single rank loses, for a loss of all ranks of a machine
_PARTS = 8  # a late rank is late in more than half of these consecutive parts of the calls
# Of the bytes of fp32: in each format between sites, and of other floats as they are.
_SHARES = {"bf16": 1 / 2, "int8": 1 / 3.94, "int4": 1 / 7.76}
_OF_FP32 = {"Float16": 1 / 2, "BFloat16": 1 / 2, "Float32": 1.0, "Float64": 2.0}


@dataclass(frozen=True)
class Finding:
    """seconds: of the whole time, that calls waited for it. who: "rank 5", "machine b" or "the way between sites"."""

    kind: str  # late, processor, link, loss, sums, crossing
    who: str
    seconds: float
    text: str
    advice: str


def findings(found: Blame) -> list[Finding]:
    """The findings, worst first. Empty if no rank, machine or link costs a tenth of the time."""
    late = _dear(found, _late(found))
    core = _slow_core(found)
    sums = _dear(found, [_sums(found, *core)] if core else [])
    # A late rank receives the others' data all at once, so its sums queue up: that is no finding of its own. Neither is
    # a machine's link that a slow core does not keep busy.
    sums = [one for one in sums if one.who not in {other.who for other in late}]
    links = _dear(found, _links(found, but=found.machine_of(core[0]) if core and sums else None))
    return sorted([*late, *links, *sums, *_dear(found, _crossings(found))], key=lambda one: one.seconds, reverse=True)


def _dear(found: Blame, every: Iterable[Finding]) -> list[Finding]:
    return [one for one in every if one.seconds >= LEAST_SHARE * found.span]


def _late(found: Blame) -> Iterator[Finding]:
    machine, of_machine = max(found.late_machine.items(), key=lambda entry: entry[1], default=("", 0.0))
    mates = _mates(found, machine)
    if len(mates) > 1 and of_machine > _MORE * max(found.late.get(rank, 0.0) for rank in mates):
        yield Finding(
            "late",
            found.title(machine),
            of_machine,
            f"its ranks {', '.join(map(str, mates))} make their calls after all others",
            "look at what that machine does between calls: its processors' clock, other jobs, its disks",
        )
        return
    if not found.late:
        return
    (rank, waited), *others = dearest(found.late, 2)
    if not _is_throughout(found, rank) or (others and waited < _TWICE * others[0][1]):
        return
    many = f"it is the last to make {found.late_calls[rank]} of {found.calls} calls"
    if _is_queued(found, rank):
        yield Finding(
            "processor",
            f"rank {rank}",
            waited,
            f"{many}, and its threads stood in line for a processor for {_queued(found, rank):.0%} of the time they "
            "wanted one",
            f"find what else runs on its cores on {_host(found, rank)} (top, taskset, the number of threads)",
        )
        return
    yield Finding(
        "late",
        f"rank {rank}",
        waited,
        f"{many}: it computes longer, or waits for its input",
        "profile that rank's step (torch.profiler) beside another's: data loading, forward, backward",
    )


def _links(found: Blame, but: str | None) -> Iterator[Finding]:
    """but: a machine to leave out."""
    slow = []
    for machine in dict.fromkeys(found.ranks[0].machines):
        ways = list(_slow_links(found, machine)) if machine != but else []
        if ways:
            seconds = sum(one.seconds for one in ways)
            slow.append(replace(max(ways, key=lambda one: one.seconds), seconds=seconds))
    if slow:
        yield max(slow, key=lambda one: one.seconds)


def _slow_links(found: Blame, machine: str) -> Iterator[Finding]:
    """The machine's links beside those of others that go the same way: within a site, or between the same two."""
    title, mates = found.title(machine), _mates(found, machine)
    ways: dict[frozenset[str], list[Link]] = defaultdict(list)
    for link in found.links.values():
        ways[_way(found, link.source, link.target)].append(link)
    for way, links in ways.items():
        touching = [link for link in links if _touches(found, link, machine)]
        others = [link for link in links if not _touches(found, link, machine)]
        if not touching or not others:
            continue
        rate, usual = _median(touching), _median(others)
        if rate >= _SLOW * usual:
            continue
        lost, usually = _lost(found, touching), _lost(found, others)
        lossy = lost > max(_MUCH_LOST, _TIMES_LOST * usually)
        again = f", and {lost:.1%} of its packets went again, {usually:.1%} of the others'" if lossy else ""
        waits = ((ends, seconds) for call in found.by_call for ends, seconds in call.wire.items())
        waited = sum(seconds for ends, seconds in waits if _way(found, *ends) == way and set(ends) & set(mates))
        yield Finding(
            "loss" if lossy and lost > _LOSSY else "link",
            title,
            (1 - rate / usual) * waited,
            f"messages to and from it go at {_rate(rate)}, between others at {_rate(usual)}{again}",
            f"look at the network card and cable of {title} (ethtool -S, ip -s link), and at who else uses them",
        )


def _way(found: Blame, rank: int, other: int) -> frozenset[str]:
    """The sites at its ends."""
    sites = found.ranks[0].sites
    return frozenset((sites[rank], sites[other])) if sites else frozenset()


def _crossings(found: Blame) -> Iterator[Finding]:
    """The way between sites. A format changes the time that the bytes of sums of floats take; the rest stays."""
    if len(set(found.ranks[0].sites)) < 2:
        return
    shares = [_share_of(call.title) for call in found.by_call]
    bytes_take = [_bytes_take(found, call) for call in found.by_call]
    less = {
        form: sum(took * (1 - share / now) for took, now in zip(bytes_take, shares, strict=True) if now and now > share)
        for form, share in _SHARES.items()
    }
    would = [f"{form} {seconds / found.span:.0%}" for form, seconds in less.items() if seconds >= 0.005 * found.span]
    yield Finding(
        "crossing",
        "the way between sites",
        sum(sum(_crossing(found, call).values()) for call in found.by_call),
        "calls wait for messages that cross it"
        + (f"; by their bytes, {', '.join(would)} of the time less" * bool(would)),
        "let gradients cross in one of the formats of fairring.between_sites, or make outer steps (fairring.outer)",
    )


def _crossing(found: Blame, call: CallBlame) -> dict[tuple[int, int], float]:
    """Seconds that the call waited for each link between sites."""
    return {ends: seconds for ends, seconds in call.wire.items() if len(_way(found, *ends)) > 1}


def _bytes_take(found: Blame, call: CallBlame) -> float:
    """The part of these seconds that the bytes take, at the rates of the links. The rest is latency."""
    return sum(
        min(seconds, call.bytes[ends] / found.links[ends].bytes_per_second)
        for ends, seconds in _crossing(found, call).items()
        if ends in found.links
    )


def _share_of(title: str) -> float | None:
    """The bytes in which the call crosses, as a share of fp32's; None if it can't cross in a format."""
    found = re.match(
        r"all_reduce(?: as (\w+) between sites)? (?:SUM|AVG) of (?:.* )?(B?Float(?:16|32|64))\b(?! as)", title
    )
    return _SHARES.get(found[1], _OF_FP32[found[2]]) if found else None


def _slow_core(found: Blame) -> tuple[int, float] | None:
    """The rank whose own sums take much longer than others', and how many times as long."""
    if len(found.own_sums) < 2:
        return None
    rank = max(found.own_sums, key=lambda one: found.own_sums[one].busy)
    own = found.own_sums[rank]
    others = [sums for other, sums in found.own_sums.items() if other != rank]
    # A rank to which all data comes at once has more to do at once, but its fastest sums are like the others'.
    times = min(
        _times(own.busy, [other.busy for other in others]),
        _times(own.least, [other.least for other in others]),
    )
    return (rank, times) if times > _SLOW_CORE else None


def _sums(found: Blame, rank: int, times: float) -> Finding:
    """A core that sums slowly sends and receives slowly too."""
    waited = sum(call.own[rank] + _wire(call, [rank]) for call in found.by_call)
    return Finding(
        "processor" if _is_queued(found, rank) else "sums",
        f"rank {rank}",
        (1 - 1 / times) * waited,
        f"its sums and copies take {times:.2g} times as long as others'",
        f"find what else runs on its cores on {_host(found, rank)}, or a core with a low clock",
    )


def _times(seconds: float, of_others: Sequence[float]) -> float:
    """How many times as long as the others' median; 0 if that is none, since one rank may sum alone."""
    usual = statistics.median(of_others)
    return seconds / usual if usual > 0 else 0.0


def _is_throughout(found: Blame, rank: int) -> bool:
    """Whether the others wait for it most in more than half of the parts, and not just once."""
    parts = min(_PARTS, found.calls)
    most = 0
    for part in range(parts):
        late: dict[int, float] = defaultdict(float)
        for call in found.by_call[part * found.calls // parts : (part + 1) * found.calls // parts]:
            for who, seconds in call.late.items():
                late[who] += seconds
        most += rank in late and late[rank] == max(late.values())
    return most > parts / 2


def _wire(call: CallBlame, ranks: Sequence[int]) -> float:
    """Seconds that the call waited for messages from and to these."""
    return sum(seconds for ends, seconds in call.wire.items() if any(rank in ends for rank in ranks))


def _mates(found: Blame, machine: str) -> list[int]:
    return [rank for rank, name in enumerate(found.ranks[0].machines) if name == machine]


def _touches(found: Blame, link: Link, machine: str) -> bool:
    return machine in (found.machine_of(link.source), found.machine_of(link.target))


def _lost(found: Blame, links: Sequence[Link]) -> float:
    """The share of packets that were retransmitted."""
    counts = [
        found.ranks[index].packets.get(link.target, (0, 0)) for link in links for index in _of(found, link.source)
    ]
    return sum(again for _, again in counts) / max(sum(sent for sent, _ in counts), 1)


def _of(found: Blame, rank: int) -> list[int]:
    return [index for index, one in enumerate(found.ranks) if one.rank == rank]


def _median(links: Sequence[Link]) -> float:
    return statistics.median(link.bytes_per_second for link in links)


def _queued(found: Blame, rank: int) -> float:
    return next(one.queued_share for one in found.ranks if one.rank == rank)


def _is_queued(found: Blame, rank: int) -> bool:
    """Where all cores are crowded, even ranks that hardly run queue for most of what they want, but not for long."""
    seconds = {one.rank: one.queued for one in found.ranks}
    others = [queued for other, queued in seconds.items() if other != rank]
    return _queued(found, rank) > _QUEUED and seconds[rank] > _TWICE * statistics.median(others or [0.0])


def _host(found: Blame, rank: int) -> str:
    return found.ranks[0].hosts[rank]


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:.3g} MB/s"
