"""Troubles planted in trainings in virtual time (tests/simulation/stragglers.cc), and whom their traces name.

Usage: python tests/stragglers/simulated.py FROM SEEDS: a table of verdicts as Markdown; wrong ones in full on stderr.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairring.trace.blame import blame
from fairring.trace.files import load
from fairring.trace.findings import LEAST_SHARE, Finding, findings
from fairring.trace.records import RankTrace
from fairring.trace.words import explain

PROGRAM = Path(__file__).parents[2] / "build" / "asan" / "tests" / "simulation" / "fairring_stragglers"
_KINDS = {
    "late rank": "late",
    "late machine": "late",
    "late input": "late",
    "late bucket": "late",
    "slow link": "link",
    "lossy link": "loss",
    "slow core": "sums",
    "busy core": "processor",
}
_SURE = 1.5 * LEAST_SHARE  # share of the time that a trouble costs for sure to be named


@dataclass(frozen=True)
class Simulated:
    """A training of which it is known what it would take without its trouble.

    who: "" where nobody is to be named. Seconds: of a step.
    """

    title: str
    planted: str
    who: str
    step_seconds: float
    without: float
    named: list[Finding]
    predicted: float  # the seconds without the first that is named
    ranks: list[RankTrace]

    @property
    def costs(self) -> float:
        """Share of the time."""
        return 1 - self.without / self.step_seconds

    @property
    def counts(self) -> bool:
        """Whether it is so dear that it is to be named, or nothing is planted."""
        return not self.who or self.costs > _SURE

    @property
    def right(self) -> bool:
        """Whether the first that is named is who it is, for its cause; nobody where nothing is planted."""
        if not self.who:
            return not self.named
        return bool(self.named) and (self.named[0].kind, self.named[0].who) == (_KINDS[self.planted], self.who)


def simulated(first: int, seeds: int, program: Path = PROGRAM) -> Iterator[Simulated]:
    """Trainings of all kinds from each seed. Raises CalledProcessError."""
    for seed in range(first, first + seeds):
        with tempfile.TemporaryDirectory() as directory:
            command = [str(program), directory, str(seed), "1"]
            lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
            groups = load(Path(directory))
            for line in lines:
                yield _judged(json.loads(line), groups)


def _judged(planted: dict, groups: dict) -> Simulated:
    ranks = groups[planted["group"]]
    found = blame(ranks)
    named = findings(found)
    gained = named[0].seconds / found.span if named else 0.0
    return Simulated(
        title=planted["group"],
        planted=planted["planted"],
        who=planted["who"],
        step_seconds=planted["step_seconds"],
        without=planted["without"],
        named=named,
        predicted=planted["step_seconds"] * (1 - gained),
        ranks=ranks,
    )


def main() -> None:
    table: dict[str, list[Simulated]] = defaultdict(list)
    for one in simulated(int(sys.argv[1]), int(sys.argv[2])):
        table[one.planted].append(one)
        if one.counts and not one.right:
            print(
                f"== {one.title}: {one.who}, {one.step_seconds * 1e3:.4g} ms a step instead of "
                f"{one.without * 1e3:.4g}\n{explain(one.ranks)}\n",
                file=sys.stderr,
            )
    print("| planted | trainings | it costs enough | named rightly | what if, off by: median, most |")
    print("|---|---|---|---|---|")
    for planted, every in table.items():
        counted = [one for one in every if one.counts]
        right = [one for one in counted if one.right]
        off = sorted(abs(one.predicted / one.without - 1) for one in right) or [0.0]
        print(f"| {planted} | {len(every)} | {len(counted)} | {len(right)} | {off[len(off) // 2]:.1%}, {off[-1]:.1%} |")


if __name__ == "__main__":
    main()
