"""Ranks that make every call among strangers, from before their group is made until after its end, and what they held.

Strangers come from a machine that is none of the group's, from a peer's machine, where they replay what they have
overheard, and from a rank's own machine. Usage: python tests/failures/scan.py [connections, by default 20000]
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from failures.holdings import Holdings, Peak, listening_ports
from failures.judge import faults
from failures.play import Case, Outcome, Play
from failures.stage import OUTSIDER, Stage
from failures.strangers import Target

CONNECTIONS = 20_000
LOW_PORT, HIGH_PORT = 29900, 29901
CASE = Case(
    "strangers",
    "strangers at every port",
    "serves",
    dict.fromkeys(range(4), ()),
    env={"FAIRRING_PORTS": f"{LOW_PORT}-{HIGH_PORT}", "FAIRRING_LANES": "3"},
)
_ATTACK = ("failures.strangers", "attack")
_PATIENCE_SECONDS = 600
_MIB = 1 << 20


@dataclass(frozen=True)
class Rank:
    """The report of one rank. opened: ports, beside that of the store. counted: strangers, by its own report."""

    opened: set[int]
    before: Holdings
    after: Holdings
    peak: Peak
    rounds: int
    outcome: Outcome

    @property
    def reports(self) -> int:
        return self.outcome.log.count("was refused")

    @property
    def counted(self) -> int:
        return sum(int(number) for number in re.findall(r"in all (\d+) connections", self.outcome.log))


@dataclass(frozen=True)
class Scan:
    ranks: list[Rank]
    connections: Counter[str]  # that were made, by kind
    seconds: float
    faults: list[str]


def play(stage: Stage, connections: int) -> Scan:
    begin = time.monotonic()
    each = connections // 3 + 1
    doors = [_doors(0), _doors(1)]
    local = [f"fairring/{_address(0)}/{port}" for port in (LOW_PORT, HIGH_PORT)]
    attackers = [
        stage.fork(OUTSIDER, _ATTACK, (doors[0] + doors[1], each, False), {}),
        stage.fork(2, _ATTACK, (doors[0], each, True), {}),
        stage.fork(1, _ATTACK, (local, each, False), {}),
    ]
    ranks = Play(stage, CASE)
    try:
        ranks.go()
        ranks.hear("serving")
        opened = [listening_ports(ranks.pids[rank]) - ({stage.port} if rank == 0 else set()) for rank in ranks.ranks]
        for attacker in attackers:
            stage.await_(lambda pid=attacker: stage.heard[pid], _PATIENCE_SECONDS, "the strangers")
        ranks.tell("enough")
        for rank in ranks.ranks:
            ranks.await_end(rank)
        for attacker in attackers:
            stage.tell(attacker, "end")
        stage.await_(lambda: all(pid in stage.codes for pid in attackers), 60, "the strangers' end")
        outcomes = ranks.run()
    finally:
        ranks.end()
    made: Counter[str] = Counter()
    for attacker in attackers:
        made.update(stage.heard[attacker][-1][1])
    said = []
    for rank in ranks.ranks:
        before = ranks.words(rank, "serving")[1]
        after, peak, rounds = ranks.words(rank, "served")[1:4]
        said.append(Rank(opened[rank], before, after, peak, rounds, outcomes[rank]))
    return Scan(said, made, time.monotonic() - begin, faults(CASE, outcomes))


def _doors(machine: int) -> list[Target]:
    return [(_address(machine), port) for port in (LOW_PORT, HIGH_PORT)]


def _address(machine: int) -> str:
    return f"10.77.0.{machine + 1}"


def main() -> None:
    stage = Stage()
    scan = play(stage, int(sys.argv[1]) if sys.argv[1:] else CONNECTIONS)
    stage.close()
    print(f"{scan.connections.total()} connections in {scan.seconds:.1f} s:")
    for kind, number in scan.connections.items():
        print(f"  {number} said {kind}")
    print("| rank | rounds | counted | MiB before | most | after | descriptors before | most | after |")
    print("|---|---|---|---|---|---|---|---|---|")
    for number, rank in enumerate(scan.ranks):
        memory = [held / _MIB for held in (rank.before.memory, rank.peak.memory, rank.after.memory)]
        counts = [rank.before.descriptors.total(), rank.peak.descriptors, rank.after.descriptors.total()]
        cells = [number, rank.rounds, rank.counted, *(f"{held:.1f}" for held in memory), *counts]
        print(f"| {' | '.join(map(str, cells))} |")
    print(*scan.faults, sep="\n", file=sys.stderr)
    sys.exit(bool(scan.faults))


if __name__ == "__main__":
    main()
