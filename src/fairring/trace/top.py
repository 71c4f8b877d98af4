"""Shows repeatedly what a live job does: calls a second, what makes it slow, each rank, the slowest links.

The job runs with FAIRRING_TRACE=DIR. The ranks of this machine are asked. Ranks of other machines are shown as they
wrote last, if DIR is shared with them and the same is run there.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from fairring.subcommands import at_least, seconds
from fairring.table import Table, terminal_width
from fairring.trace.blame import Blame, blame
from fairring.trace.files import largest, load
from fairring.trace.records import Call, RankTrace, Step, TraceError
from fairring.trace.words import elsewhere, explain

HELP = "watches a live job: calls a second, who is slow, each rank, links"
_CLEAR = "\x1b[H\x1b[2J"
_LINKS = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="the job's FAIRRING_TRACE")
    parser.add_argument("--group", help="by name; the one with most calls if none is given")
    parser.add_argument(
        "--last", type=at_least(1), metavar="CALLS", default=200, help="look at so many calls (%(default)s)"
    )
    parser.add_argument(
        "--every", type=seconds(0.0), metavar="SECONDS", default=2.0, help="look so often (%(default)s)"
    )
    parser.add_argument(
        "--times", type=at_least(1), metavar="N", help="look so many times; until interrupted if not given"
    )


def run(arguments: argparse.Namespace) -> int:
    from fairring.trace.live import ask, nobody_answers

    before: tuple[float, int] | None = None  # when the job was last looked at, and the number of calls then
    pause = threading.Event()
    try:
        for look in count(1):
            answered, refused = ask(arguments.directory, arguments.last + 1)
            if not answered:
                for told in refused or [nobody_answers(arguments.directory)]:
                    print(f"fairring top: {told}", file=sys.stderr)
                return 1
            now = time.monotonic()
            groups = load(arguments.directory)
            ranks = largest(groups, arguments.group)
            others = elsewhere(groups, ranks) if arguments.group is None else []
            made = max(_made(one) for one in ranks)
            per_second = (made - before[1]) / (now - before[0]) if before else None
            before = (now, made)
            print(_CLEAR if sys.stdout.isatty() else "", end="")
            print("\n".join([*refused, *others, *picture(ranks, arguments.last, per_second)]), flush=True)
            if look == arguments.times:
                return 0
            pause.wait(arguments.every)
    except TraceError as error:
        print(f"fairring top: {error}", file=sys.stderr)
        return 1
    return 0


def picture(ranks: Sequence[RankTrace], last: int, per_second: float | None = None) -> list[str]:
    """One look at a group, in lines. per_second: calls since the last look; None: this is the first."""
    rate = "" if per_second is None else f", {per_second:.3g} calls/s"
    lines = [f"{time.strftime('%H:%M:%S')}{rate}"]
    found: Blame | None = None
    try:
        lines.append(explain(ranks, last))
        found = blame(ranks, last)
    except TraceError as error:  # too few calls yet
        lines.append(str(error))
    return [*lines, "", *_ranks(ranks, found), *_links(found)]


def _made(one: RankTrace) -> int:
    return max(one.calls, default=0)


def _ranks(ranks: Sequence[RankTrace], found: Blame | None) -> list[str]:
    heads = ("rank", "machine", "calls", "under way", "for", "waits for", "last to come", "in line for a core")
    table = Table(heads)
    for one in ranks:
        under_way = [call for call in one.calls.values() if call.ended is None]
        late = f"{found.late.get(one.rank, 0.0) / found.steps * 1e3:.3g} ms/step" if found else "-"
        row = (one.rank, one.hosts[one.rank], _made(one), len(under_way), _age(one, under_way), _whom(one.steps))
        table.add(*map(str, row), late, f"{one.queued_share:.0%}")
    return list(table.lines(terminal_width()))


def _age(one: RankTrace, under_way: Sequence[Call]) -> str:
    if not under_way:
        return "-"
    return f"{one.now - min(call.submitted for call in under_way):.3g} s"


def _whom(steps: Iterable[Step]) -> str:
    waits = sorted({step.peer for step in steps if step.ready is None and step.peer is not None})
    return ", ".join(map(str, waits)) or "-"


def _links(found: Blame | None) -> list[str]:
    if not found or not found.links:
        return []
    slowest = sorted(found.links.values(), key=lambda link: link.bytes_per_second)[:_LINKS]
    table = Table(("from", "to", "MB/s"), keys=2)
    for link in slowest:
        table.add(str(link.source), str(link.target), f"{link.bytes_per_second / 1e6:.3g}")
    return ["", "Slowest on the wire, large messages:", *table.lines(terminal_width())]
