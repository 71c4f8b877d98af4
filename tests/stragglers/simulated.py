"""Troubles planted in trainings in virtual time (tests/simulation/stragglers.cc), and whom their traces name.

Prints a table of verdicts as Markdown, and wrong ones in full on stderr.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
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
    steps: float  # that were looked at
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


def simulated(first: int, seeds: int, kinds: Sequence[str] = (), program: Path = PROGRAM) -> Iterator[Simulated]:
    """Trainings of these or all kinds from each seed. Raises CalledProcessError."""
    for seed, kind in product(range(first, first + seeds), kinds or [""]):
        with tempfile.TemporaryDirectory() as directory:
            command = [str(program), directory, str(seed), "1", *filter(None, [kind])]
            lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
            groups = load(Path(directory))
            for line in lines:
                yield _judged(json.loads(line), groups)


def _judged(planted: dict, groups: dict) -> Simulated:
    ranks = groups[planted["group"]]
    found = blame(ranks)
    return Simulated(
        title=planted["group"],
        planted=planted["planted"],
        who=planted["who"],
        step_seconds=planted["step_seconds"],
        without=planted["without"],
        named=findings(found),
        steps=found.steps,
        ranks=ranks,
    )


def main() -> None:
    arguments = parsed()
    table: dict[str, list[Simulated]] = defaultdict(list)
    for one in simulated(arguments.first, arguments.seeds, arguments.kind, arguments.program):
        table[one.planted].append(one)
        if one.counts and not one.right:
            print(
                f"== {one.title}: {one.who}, {one.step_seconds * 1e3:.4g} ms a step instead of "
                f"{one.without * 1e3:.4g}\n{explain(one.ranks)}\n",
                file=sys.stderr,
            )
    print("| planted | trainings | steps | count | named correctly |\n|---|---|---|---|---|")
    for planted, every in table.items():
        counted = [one for one in every if one.counts]
        right = sum(one.right for one in counted)
        steps = round(sum(one.steps for one in every))
        print(f"| {planted} | {len(every)} | {steps} | {len(counted)} | {right} |")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int, help="seed")
    parser.add_argument("seeds", type=int, help="how many from the first on")
    parser.add_argument("--kind", action="append", default=[], help="of the program's; all if none is given")
    parser.add_argument("--program", type=Path, default=PROGRAM, help="as built without sanitizers, say")
    return parser.parse_args()


if __name__ == "__main__":
    main()
