"""A blame in words, for people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from fairring.config import MIB, Config
from fairring.trace.blame import Blame, blame, dearest
from fairring.trace.files import largest
from fairring.trace.findings import LEAST_SHARE, findings
from fairring.trace.records import RankTrace, TraceError
from fairring.trace.stuck import stands_still, stuck

_SHOWN = 3


def explain(ranks: Sequence[RankTrace], last: int | None = None) -> str:
    """The text that says why the group is slow, where its time goes, and what is under way. Raises TraceError."""
    lines, way = [*_errors(ranks), *stuck(ranks)], _device_way(ranks)
    try:
        lines += _slow(blame(ranks, last))
    except TraceError as error:
        if not lines and not way:
            raise
        lines.append(str(error))
    return "\n".join([*lines, *way])


def _device_way(ranks: Sequence[RankTrace]) -> list[str]:
    """Who has the calls on CUDA tensors, on which all ranks agree; nothing where none has asked."""
    return [one.device_way for one in ranks if one.device_way][:1]


def explain_job(groups: Mapping[str, Sequence[RankTrace]], name: str | None, last: int | None = None) -> str:
    """explain() of the group of that name; else of that with most calls, after elsewhere(). Raises TraceError."""
    ranks = largest(groups, name)
    lines = elsewhere(groups, ranks) if name is None else []
    try:
        lines.append(explain(ranks, last))
    except TraceError as error:
        if not lines:
            raise
        lines.append(f"Group {ranks[0].group}: {error}")
    return "\n".join(lines)


def elsewhere(groups: Mapping[str, Sequence[RankTrace]], ranks: Sequence[RankTrace]) -> list[str]:
    """Errors and what stands still in other groups than that of these ranks."""
    return [
        f"Group {name}: {line}"
        for name, traces in groups.items()
        if traces is not ranks
        for line in [*_errors(traces), *(stuck(traces) if stands_still(traces) else ())]
    ]


def _slow(found: Blame) -> Iterator[str]:
    world = len(found.ranks[0].machines)
    each = found.span / found.steps
    ranks = f"{len(found.ranks)} of {world} ranks" if len(found.ranks) < world else f"{world} ranks"
    of = f", {found.period} calls a step" if found.period > 1 else ""
    yield (
        f"Group {found.ranks[0].group}, {ranks}: {found.calls} calls in {found.span:.3g} s{of}; "
        f"{_ms(each)} from one {'step' if found.period > 1 else 'call'} to the next."
    )
    if found.clock_error is None:
        yield "Clocks: by the machines' own dates, for not all have heard each other's heartbeats; take care."
    elif len(set(found.ranks[0].machines)) > 1:
        yield f"Clocks agree to {found.clock_error * 1e6:.0f} microseconds or better."
    named = findings(found)
    if not named:
        yield _nobody(found)
    for number, one in enumerate(named, 1):
        yield f"{number}. {one.who} costs {one.seconds / found.span:.0%} of the time ({one.kind}): {one.text}."
        yield f"   To do: {one.advice}."
    yield f"Where the time goes: {_parts(found)}."
    yield from _staging(found)
    yield from _worst(found)


def _nobody(found: Blame) -> str:
    if len(found.ranks) == len(found.ranks[0].machines):
        return f"Nobody and nothing stands out: no cause costs {LEAST_SHARE:.0%} of the time."
    ranks = f"rank {', '.join(str(one.rank) for one in found.ranks)}"
    return (
        f"Only the records of {ranks} were looked at. Alone they can't tell whether another rank is late, or the way "
        "from it is slow: the records of all ranks can. `fairring why DIR` asks them while the job runs with "
        "FAIRRING_TRACE=DIR, and `fairring trace explain DIR` afterwards."
    )


def _parts(found: Blame) -> str:
    parts = {
        "computing, while no call waits": found.computing,
        "waiting for the last rank to make a call": sum(found.late.values()),
        "between machines": sum(found.wire.values()),
        "within machines": sum(found.machine.values()),
        "sums and copies": sum(found.sums.values()),
        "waiting for a receiver's memory": sum(found.grants.values()),
        "beginning and ending calls": sum(found.loop.values()),
    }
    ordered = sorted(parts.items(), key=lambda part: part[1], reverse=True)
    return ", ".join(f"{name} {seconds / found.span:.0%}" for name, seconds in ordered if seconds >= 0.01 * found.span)


def _staging(found: Blame) -> Iterator[str]:
    """Staging below the default. No finding: with much waiting for it the links may be as busy as with none."""
    rank, seconds = dearest(found.staging, 1)[0]
    staging = next(one.staging_bytes for one in found.ranks if one.rank == rank)
    if seconds < LEAST_SHARE * found.span or staging >= Config.total_memory:
        return
    yield (
        f"Slices of {found.who(rank)} waited for staging for {seconds / found.span:.0%} of the time: FAIRRING_TOTAL_"
        f"MEMORY gives it {staging / MIB:.3g} MiB instead of the default {Config.total_memory / MIB:.3g}. What more "
        "would gain, a trace does not tell: try it."
    )


def _worst(found: Blame) -> Iterator[str]:
    if len(found.ranks) == 1:
        yield from _seen_by_one(found)
        return
    late = [f"{found.who(rank)} {_ms(seconds / found.steps)}" for rank, seconds in dearest(found.late, _SHOWN)]
    if late:
        yield f"Last to come, by step: {', '.join(late)}."
    wires = dearest(found.wire, _SHOWN)
    shown = [
        f"{source} to {target} {_ms(seconds / found.steps)}{_speed(found, source, target)}"
        for (source, target), seconds in wires
    ]
    if shown:
        yield f"Waited for on the wire, by step, from rank to rank: {', '.join(shown)}."


def _seen_by_one(found: Blame) -> Iterator[str]:
    """Without the others' traces a late rank can't be told from a slow wire."""
    waits: dict[int, float] = defaultdict(float)
    for (peer, _), seconds in [*found.wire.items(), *found.machine.items()]:
        waits[peer] += seconds
    whom = [f"{found.who(rank)} {_ms(seconds / found.steps)}" for rank, seconds in dearest(waits, _SHOWN)]
    if whom:
        yield f"This rank waited, by step, for {', '.join(whom)}: they, the way from them, or whom they waited for."


def _speed(found: Blame, source: int, target: int) -> str:
    link = found.links.get((source, target))
    return f" at {link.bytes_per_second / 1e6:.3g} MB/s" if link else ""


def _errors(ranks: Sequence[RankTrace]) -> Iterator[str]:
    first = next((one for one in ranks if one.error), None)
    if first:
        yield f"The group failed: {first.error}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
