"""Ranks stream calls, one of them or a cable holds all up, and the others must name it, though most of them wait for
ranks that wait themselves.

    python tests/failures/chains.py --times 100 --seed 1

A rank is stopped, or computes and makes no further call, or a machine's cable is cut, at a random moment of a random
kind of call, on 2x2, 2x4 and 3x2 in turn. Prints how often each of the ranks named the culprit first, and the seconds
until the last of them did; every plant that somebody took for another follows, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from failures.judge import named_in
from failures.play import Case, Outcome, Play
from failures.stage import Stage, StageError

LAYOUTS = ("2x2", "2x4", "3x2")
CALLS = ("all_reduces", "all_gathers", "reduce_scatters", "all_to_alls", "rooted", "messages")
PLANTS = ("stop", "compute", "cut")
TIMEOUT_SECONDS = 4.0


@dataclass(frozen=True)
class Chain:
    """who: the rank that is stopped or computes, or the machine whose cable is cut, that many seconds after the
    beginning.
    """

    layout: str
    calls: str
    plant: str
    who: int
    after: float

    @property
    def title(self) -> str:
        of = "machine" if self.plant == "cut" else "rank"
        return f"{self.layout}: {self.plant}, {of} {self.who}, in {self.calls} after {self.after:.2f} s"


def case_of(chain: Chain, timeout: float = TIMEOUT_SECONDS) -> Case:
    return Case(
        chain.title,
        chain.title,
        chain.calls,
        {},
        event_of(chain),
        layout=chain.layout,
        timeout=timeout,
        module="failures.streams",
    )


def event_of(chain: Chain) -> Callable[[Play], None]:
    def event(play: Play) -> None:
        play.go()
        play.wait_until(chain.after)
        if chain.plant == "cut":
            play.set_link(chain.who, False)
        elif chain.plant == "stop":
            play.signal(chain.who, signal.SIGSTOP)
        else:
            play.mark()
            play.tell("compute", [chain.who])
        try:
            for rank in asked_of(chain):
                play.await_end(rank)
        finally:
            if chain.plant == "cut":
                play.stage.lab.set_link(chain.who, True)
        play.end()

    return event


def machine_of(chain: Chain, rank: int) -> int:
    return rank // int(chain.layout.split("x")[1])


def asked_of(chain: Chain) -> list[int]:
    """The ranks that have to name the culprit."""
    machines, ranks = (int(count) for count in chain.layout.split("x"))
    return [rank for rank in range(machines * ranks) if chain.plant == "cut" or rank != chain.who]


def culprits_of(chain: Chain, rank: int) -> set[int]:
    """The culprit as this rank sees it. Of a cut machine's ranks any: each is out of reach, and so are the others to
    them.
    """
    if chain.plant != "cut":
        return {chain.who}
    is_cut = machine_of(chain, rank) == chain.who
    return {other for other in asked_of(chain) if (machine_of(chain, other) == chain.who) != is_cut}


def faults(chain: Chain, outcomes: dict[int, Outcome]) -> list[str]:
    """What is wrong with what the ranks raised; empty where each has named the culprit and nobody else first."""
    wrong = []
    for rank in asked_of(chain):
        named = named_in(outcomes[rank].text)
        if not named or not named <= culprits_of(chain, rank):
            wrong.append(f"{chain.title}: rank {rank} names {sorted(named)}: {outcomes[rank]}")
        elif outcomes[rank].code != 0:
            wrong.append(f"{chain.title}: rank {rank} ended with code {outcomes[rank].code}")
    return wrong


def drawn(draw: random.Random, layout: str) -> Chain:
    machines, ranks = (int(count) for count in layout.split("x"))
    plant = draw.choice(PLANTS)
    who = draw.randrange(machines if plant == "cut" else machines * ranks)
    return Chain(layout, draw.choice(CALLS), plant, who, draw.uniform(0.05, 0.5))


def machines_for(layouts: list[str]) -> tuple[int, ...]:
    """Of as many nurseries each as the largest of these layouts needs."""
    sizes = [tuple(int(count) for count in layout.split("x")) for layout in layouts]
    return tuple(max(ranks for count, ranks in sizes if count > machine) for machine in range(max(sizes)[0]))


def show(ended: dict[tuple[str, str], list[tuple[bool, float]]]) -> None:
    print("\n| machines x ranks | plant | planted | named on every rank | median s | worst s |")
    print("|---|---|---|---|---|---|")
    for (layout, plant), plays in sorted(ended.items()):
        times = [seconds for _, seconds in plays]
        median, worst = f"{statistics.median(times):.1f}", f"{max(times):.1f}"
        print(f"| {layout} | {plant} | {len(plays)} | {sum(held for held, _ in plays)} | {median} | {worst} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100, help="plants (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="that they are drawn from (default: 1)")
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help=f"default: {','.join(LAYOUTS)}")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    layouts = options.layouts.split(",")
    wrong: list[str] = []
    ended: dict[tuple[str, str], list[tuple[bool, float]]] = {}
    stage = Stage(machines_for(layouts))
    try:
        for number in range(options.times):
            chain = drawn(draw, layouts[number % len(layouts)])
            try:
                outcomes = Play(stage, case_of(chain)).run()
                found = faults(chain, outcomes)
            except StageError as error:
                outcomes, found = {}, [f"{chain.title}: {error}"]
            wrong += found
            times = [outcomes[rank].seconds for rank in asked_of(chain) if rank in outcomes]
            last = max((seconds for seconds in times if seconds is not None), default=0.0)
            ended.setdefault((chain.layout, chain.plant), []).append((not found, last))
            print(f"{'wrong' if found else 'ok':5} {last:5.1f} s  {chain.title}", flush=True)
    finally:
        stage.close()
    show(ended)
    for fault in wrong:
        print(re.sub(r"\s+", " ", fault), file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
