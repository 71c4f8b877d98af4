"""Large gaps between what was measured and what the cost rows predict, each with its likely cause. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairring.check.findings import WARN, Finding
from fairring.cost_rows import LEVELS

LARGE = 3.0  # times as long, or as short
CLOSE = 0.5  # of what an interface should bring: below it something is wrong with the way
SAVE = "`fairring check --save FILE` writes this network's rows, for FAIRRING_COST_ROWS on all ranks"


def gaps(
    levels: Sequence[Mapping[str, Any]], heres: Sequence[Mapping[str, Any]], machines: Sequence[str], *, saved: bool
) -> list[Finding]:
    """A finding for each level whose time is far from the predicted one.

    levels: report.compared()'s. heres: report.here()'s of each rank; machines: of each rank. saved: the rows come from
    a file.
    """
    return [
        Finding(WARN, _gap(level), _cause(level, heres, machines, saved))
        for level in levels
        if not 1 / LARGE < level["seconds"] / level["predicted_seconds"] < LARGE
    ]


def _gap(level: Mapping[str, Any]) -> str:
    seconds, predicted = level["seconds"], level["predicted_seconds"]
    times = seconds / predicted if seconds > predicted else predicted / seconds
    how = "longer" if seconds > predicted else "shorter"
    return (
        f"16 MiB at level {level['level']} took {seconds * 1e3:.1f} ms, {times:.1f} times {how} than the predicted "
        f"{predicted * 1e3:.1f} ms"
    )


def _cause(level: Mapping[str, Any], heres: Sequence[Mapping[str, Any]], machines: Sequence[str], saved: bool) -> str:
    if level["seconds"] < level["predicted_seconds"]:
        return f"the cost rows are of a slower system, so plans may be chosen wrongly; {SAVE}"
    if level["level"] == LEVELS[0]:
        return "; ".join(_of_a_machine(heres, machines))
    return ". ".join(filter(None, [_of_a_network(level, heres, machines, saved), _busy(heres)]))


def _of_a_machine(heres: Sequence[Mapping[str, Any]], machines: Sequence[str]) -> Iterator[str]:
    ranks = Counter(machines)
    short = next((n for n, here in enumerate(heres) if ranks[machines[n]] > here["machine"]["usable_cores"]), None)
    if short is not None:
        host, cores = heres[short]["network"]["hostname"], heres[short]["machine"]["usable_cores"]
        yield f"{ranks[machines[short]]} ranks of {host} share {cores} cores"
    busy = _busy(heres)
    if busy:
        yield busy
    if short is None and not busy:
        yield "its memory is slow, or its cores are bound to few: look at its clock, cpusets and NUMA nodes"


def _busy(heres: Sequence[Mapping[str, Any]]) -> str:
    """The machine with most to do for each core; empty if all cores are enough."""
    loads = ((here["machine"]["load"], here["machine"]["usable_cores"], here["network"]["hostname"]) for here in heres)
    share, cores, host = max((load / cores, cores, host) for load, cores, host in loads)
    load = f"{host} had a load of {share * cores:.1f} on {cores} cores"
    return f"{load}, so other programs may have taken them" if share > 1 else ""


def _of_a_network(
    level: Mapping[str, Any], heres: Sequence[Mapping[str, Any]], machines: Sequence[str], saved: bool
) -> str:
    brought, expected = (level[name] / 1e6 for name in ("bytes_per_second", "predicted_bytes_per_second"))
    text = f"the network brought a rank {brought:.0f} MB/s each way, and the cost rows say {expected:.0f}"
    most = max(Counter(machines).values())
    first = [here["network"]["reached"]["interfaces"][0] for here in heres]
    speeds = [one["speed"] for one in first if one["speed"] is not None]
    if not speeds:
        origin = "saved when it was faster" if saved else "built in, for 10 Gbit/s and a rank alone on its machine"
        return (
            f"{text} ({origin}). If {brought * most * 8:.0f} Mbit/s is what a machine has, {SAVE}; else look "
            "at cables, switches, other traffic, and whether TP_SOCKET_IFNAME names the fast interface"
        )
    share = min(speeds) / 8 / most
    text += f". An interface of {min(speeds)} Mbit/s should bring {share:.0f} to each of {most} rank(s) of a machine"
    if brought < CLOSE * share:
        return f"{text}: look at cables, switches, other traffic, MTU and cores"
    return f"{text}, and does; {SAVE}"
