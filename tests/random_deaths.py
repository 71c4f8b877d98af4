"""Faults at random moments of random collectives: the others go on, and agree on which steps have counted.

A rank is killed, or stopped: for a moment, until the others have given it up, or for ever. The link of a machine is cut
for a moment, until the ranks have given each other up, or for a round longer. Where ranks reconfigure, members are left
out and taken in by chance, those that were stopped or cut off among them.

A step is one or two calls whose result is added to a log of who took part in it, and to a number that follows from the
log alone. So whoever knows the log of the steps that counted knows the number: another run, told the same membership.

    python tests/random_deaths.py --seeds 100 --first 0

Every third seed shrinks a group. Its store stands outside of the lab, so no link is cut there.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from ranks import Ranks

from fairring import lab
from fairring import members as fairring_members
from fairring.lab import namespaces
from fairring.members import Mark

RANKS = 6  # the processes; not all are members from the start
MACHINES = 3
PRIME = 1_000_003
TIMEOUT = timedelta(seconds=60)
TIMEOUT_OF_SILENT = timedelta(seconds=10)  # where ranks may be stopped, or cut off, before they are connected
HEARTBEAT = "1s"
MOMENT_SECONDS = 0.2
CUT_WITHIN_SECONDS = 0.3  # of a round's beginning
MOST_LAST_ROUNDS = 5
KILLS = ("kill",)
STOPS = ("stop for a moment", "stop until given up", "stop for ever")
CUTS = ("cut for a moment", "cut until given up", "cut for a round")
SIZES = (1, 1000, 300_000)
MOMENTS = ("before", "under way", "after")
c10d: Any = dist.distributed_c10d
Log = tuple[tuple[int, ...], ...]  # of each step that counted: who took part
State = tuple[Log, int]  # and the number that the calls' results have led to


def number_of(log: Log) -> int:
    number = 1
    for step, members in enumerate(log):
        number = (number * 31 + result_of(step, members, number)) % PRIME
    return number


def share_of(step: int, member: int, number: int) -> int:
    return (number % 1000 + 1) * (member + 1) + step


def result_of(step: int, members: Sequence[int], number: int) -> int:
    kind = kind_of(step)
    shares = [share_of(step, member, number) for member in members]
    return shares[step % len(members)] if kind == "broadcast" else sum(shares)


def kind_of(step: int) -> str:
    kinds = ("all_reduce", "broadcast", "all_gather", "all_to_all", "reduce and broadcast", "reduce_scatter")
    return random.Random(step).choice(kinds)


# --- in the ranks


@dataclass
class Fault:
    """A fault of a rank."""

    kind: str  # of KILLS or STOPS
    step: int  # of the round; -1: the meeting
    moment: str

    def strikes(self, step: int, moment: str) -> None:
        if (step, moment) == (self.step, self.moment):
            os.kill(os.getpid(), signal.SIGKILL if self.kind in KILLS else signal.SIGSTOP)


@dataclass
class Cut:
    """A cut of a machine's link."""

    kind: str  # of CUTS
    machine: int
    at: float  # time.monotonic()
    done: bool = False


@dataclass
class Player:
    """One rank, and the states that it may have to return to."""

    kept: list[tuple[Mark, State]] = field(default_factory=list)
    members: list[int] = field(default_factory=list)  # by rank of its group


PLAYER = Player()


def enter_machine(rank: int, pids: list[int]) -> None:
    """pids: of a process on each machine of the lab. This process still has one thread."""
    namespaces.enter_those_of(pids[machine_of(rank)])


def begin(_rank: int, timeout: timedelta) -> str:
    dist.init_process_group(
        "fairring", store=dist.HashStore(), rank=0, world_size=1, timeout=timeout, enable_reconfigure=True
    )
    handle: str = c10d._get_reconfigure_handle()
    return handle


def begin_with_store(rank: int, port: int, timeout: timedelta) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("fairring", store=store, rank=rank, world_size=RANKS, timeout=timeout)
    PLAYER.members = list(range(RANKS))


@dataclass
class Round:
    """The message to all members of a group."""

    uuid: int
    members: list[int]  # by rank
    steps: int
    faults: dict[int, Fault]
    timeout: timedelta
    handles: list[str] | None = None  # None: shrink the group
    aborts: bool = True


@dataclass
class Report:
    said: str  # ok, or the error
    answer: list[int | None] | None = None
    kept: State | None = None  # after the meeting: what counted on this rank; None: it has no state to begin with


def play(rank: int, round_: Round) -> Report:
    """A meeting and some steps; ends with the first error."""
    report = Report("ok")
    try:
        if meet(round_, round_.faults.get(rank)):
            report.answer = go_back()
        report.kept = PLAYER.kept[-1][1] if PLAYER.kept else None
        work(rank, catch_up(), round_.steps, round_.faults.get(rank))
    except dist.DistBackendError as error:
        report.said = str(error)
    return report


def meet(round_: Round, fault: Fault | None) -> bool:
    """False: no rank is to leave."""
    fault_at(fault, -1, "before")
    if round_.handles is None:
        excluded = [index for index, member in enumerate(PLAYER.members) if member not in round_.members]
        if not excluded:
            return False
        dist.shrink_group(excluded, shrink_flags=c10d.SHRINK_ABORT if round_.aborts else c10d.SHRINK_DEFAULT)
    else:
        meeting = c10d._reconfigure(round_.uuid, round_.handles, timeout=round_.timeout)
        fault_at(fault, -1, "under way")
        meeting.wait()
    PLAYER.members = round_.members
    fault_at(fault, -1, "after")
    return True


def fault_at(fault: Fault | None, step: int, moment: str) -> None:
    if fault is not None:
        fault.strikes(step, moment)


def go_back() -> list[int | None] | None:
    """Returns to the last state that counts."""
    last = fairring_members.last_complete()
    if last is None:
        return None
    mark = last.mark
    PLAYER.kept = [one for one in PLAYER.kept if mark is not None and one[0] <= mark]
    return last.calls_of_rank


def catch_up() -> State:
    """All take the state of a rank that has one; the ranks that have one have the same."""
    has = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    has[dist.get_rank()] = 1 if PLAYER.kept else 0
    dist.all_reduce(has)
    states: list[Any] = [PLAYER.kept[-1][1] if PLAYER.kept else ((), 1)]
    if int(has.max()) > 0:
        dist.broadcast_object_list(states, group_src=int(has.argmax()))
    state: State = states[0]
    PLAYER.kept.append((fairring_members.mark(), state))
    return state


def work(rank: int, state: State, steps: int, fault: Fault | None) -> None:
    log, number = state
    for step in range(steps):
        result = take_step(rank, len(log), number, step, fault)
        number = (number * 31 + result) % PRIME
        log = (*log, tuple(PLAYER.members))
        PLAYER.kept.append((fairring_members.mark(), (log, number)))
        fault_at(fault, step, "after")


def take_step(rank: int, number_of_step: int, number: int, step: int, fault: Fault | None) -> int:
    size = dist.get_world_size()
    elements = SIZES[number_of_step % len(SIZES)]
    share = torch.full((elements,), share_of(number_of_step, rank, number), dtype=torch.int64)
    root = number_of_step % size
    kind = kind_of(number_of_step)
    fault_at(fault, step, "before")
    works: list[Any]
    if kind == "broadcast":
        works, results = [dist.broadcast(share, group_src=root, async_op=True)], [share]
    elif kind == "all_gather":
        rows = [torch.empty_like(share) for _ in range(size)]
        works, results = [dist.all_gather(rows, share, async_op=True)], rows
    elif kind == "all_to_all":
        rows = [torch.empty_like(share) for _ in range(size)]
        works, results = [dist.all_to_all(rows, [share] * size, async_op=True)], rows
    elif kind == "reduce_scatter":
        row = torch.empty_like(share)
        works, results = [dist.reduce_scatter(row, [share] * size, async_op=True)], [row]
    elif kind == "reduce and broadcast":
        dist.reduce(share, group_dst=root)
        works, results = [dist.broadcast(share, group_src=root, async_op=True)], [share]
    else:
        works, results = [dist.all_reduce(share, async_op=True)], [share]
    fault_at(fault, step, "under way")
    for one in works:
        one.wait()
    total: torch.Tensor = sum(results[1:], results[0])
    assert bool((total == total[0]).all())
    return int(total[0])


# --- in the test


def machine_of(rank: int) -> int:
    return rank * MACHINES // RANKS


class Game:
    """The rounds of one seed; raises AssertionError if ranks disagree, or do not come back."""

    def __init__(self, seed: int, shrinks: bool, kinds: Sequence[str] = KILLS, cluster: lab.Lab | None = None) -> None:
        """cluster: MACHINES machines of one process each, for CUTS; for a group that is shrunk its links stay whole."""
        self.random = random.Random(seed)
        self.shrinks = shrinks
        self.kinds = [kind for kind in kinds if kind not in CUTS]
        self.cuts = [kind for kind in kinds if kind in CUTS and not shrinks]
        self.cluster = cluster if self.cuts else None
        self.timeout = TIMEOUT if tuple(kinds) == KILLS else TIMEOUT_OF_SILENT
        environment = {"TORCH_FR_BUFFER_SIZE": "0"}  # whose dumps take seconds of each rank
        if tuple(kinds) != KILLS:
            environment["FAIRRING_HEARTBEAT_TIMEOUT"] = HEARTBEAT
        machines = [{"FAIRRING_MACHINE": f"machine {machine_of(rank)}"} for rank in range(RANKS)]
        if self.cluster is not None:
            machines = [{"TP_SOCKET_IFNAME": "eth0"}] * RANKS
        self.ranks = Ranks(RANKS, environment, machines)
        self.alive = list(range(RANKS))
        self.uuid = 0
        self.struck: Counter[str] = Counter()
        self.seen_stopped: dict[int, float] = {}  # ranks in this round, and since when
        self.failed = False  # this round
        self.faults: dict[int, Fault] = {}
        self.cut: Cut | None = None
        if shrinks:
            self.handles = [""] * RANKS
            self.ranks.run(begin_with_store, self.ranks.store.port, self.timeout)
            self.members = list(range(RANKS))
        else:
            if self.cluster is not None:
                self.ranks.run(enter_machine, [self.cluster.pid(machine) for machine in range(MACHINES)])
            self.handles = self.ranks.run(begin, self.timeout)
            self.members = self.random.sample(self.alive, RANKS - 2)

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            healed = self.cut  # from the last round, at the end of this one
            self.round(self.chosen_faults(), self.chosen_cut() if healed is None else healed)
            self.mend_link(before_a_round=healed is None)
            self.members = self.next_members()
        self.mend_link(before_a_round=False)
        reports = self.last_round()
        states = self.ranks.run(state_at_the_end, on=sorted(self.members))
        assert all(one == states[0] for one in states), "parameters differ at the end"
        assert states[0][1] == number_of(states[0][0]), "another run with these members has other parameters"
        assert states[0][0]
        assert reports
        self.ranks.kill()

    def last_round(self) -> list[Report]:
        """Without faults; but on a busy machine a rank may be so late that it is taken for a silent one."""
        for _ in range(MOST_LAST_ROUNDS):
            reports = self.round({}, None)
            wrong = [report.said for report in reports if report.said != "ok"]
            if not wrong:
                return reports
            late = () if self.timeout == TIMEOUT else ("no sign of life", "Timed out")
            assert any(word in text for word in late for text in wrong), wrong
            self.members = self.next_members()
        raise AssertionError(f"{MOST_LAST_ROUNDS} rounds without a fault came to nothing: {wrong}")

    def chosen_faults(self) -> dict[int, Fault]:
        victims = self.random.sample(self.members, min(self.random.choice((0, 1, 1, 1, 2)), len(self.members) - 1))
        return {
            victim: Fault(
                self.random.choice(self.kinds), self.random.choice((-1, 0, 1, 2, 3)), self.random.choice(MOMENTS)
            )
            for victim in victims
        }

    def chosen_cut(self) -> Cut | None:
        if self.cluster is None or self.random.random() < 0.5:
            return None
        moment = time.monotonic() + self.random.random() * CUT_WITHIN_SECONDS
        return Cut(self.random.choice(self.cuts), self.random.randrange(MACHINES), moment)

    def next_members(self) -> list[int]:
        if self.shrinks:
            return self.left_after_a_shrink()
        reachable = [member for member in self.alive if self.cut is None or machine_of(member) != self.cut.machine]
        if not reachable:
            self.mend_link(before_a_round=False)
            reachable = self.alive
        some = [member for member in reachable if self.random.random() < 0.8]
        chosen = self.random.sample(some, len(some)) or reachable[:1]
        self.struck["join"] += len(set(chosen) - set(self.members))
        return chosen

    def left_after_a_shrink(self) -> list[int]:
        """A group that has failed must lose a rank: one that died, was stopped, or was late without a fault."""
        left = [member for member in self.members if member in self.alive]
        if not self.failed or len(left) == 1:
            return left
        lively = [member for member in left if member not in self.seen_stopped]
        return lively if len(lively) < len(self.members) else lively[:-1]

    def round(self, faults: dict[int, Fault], cut: Cut | None) -> list[Report]:
        self.uuid += 1
        handles = None if self.shrinks else [self.handles[member] for member in self.members]
        aborts = self.random.random() < 0.5
        steps = self.random.randint(2, 5)
        told = Round(self.uuid, self.members, steps, faults, self.timeout, handles, aborts)
        self.faults, self.cut, self.seen_stopped = faults, cut, {}
        members = sorted(self.members)
        outcomes = self.ranks.outcomes(self.ranks.start(play, told, on=members), self.attend)
        reports = []
        for member, outcome in zip(members, outcomes, strict=True):
            if outcome.word == "ok":
                reports.append(outcome.result)
                continue
            fault = faults[member].kind if member in faults else "no fault"
            assert fault in {"died": KILLS, "left out": STOPS[2:]}.get(outcome.word, ()), f"rank {member}: {outcome}"
            self.alive.remove(member)
            self.struck[fault] += 1
        self.failed = any(report.said != "ok" for report in reports)
        answers = [report.answer for report in reports if report.answer is not None]
        assert all(answer == answers[0] for answer in answers), f"ranks have learnt different things: {answers}"
        kept = [report.kept for report in reports if report.kept is not None]
        assert all(one == kept[0] for one in kept), f"other steps counted on other ranks: {kept}"
        return reports

    def attend(self, pending: list[int]) -> list[int]:
        """Cuts the link and lets ranks go on, when it is time. Returns the ranks that never will."""
        now = time.monotonic()
        self.attend_to_link(now)
        stopped = [rank for rank in pending if self.ranks.is_stopped(rank)]
        for rank in stopped:
            since = self.seen_stopped.setdefault(rank, now)
            if self.faults[rank].kind == STOPS[0] and now > since + MOMENT_SECONDS:
                self.resume(rank)
        if set(stopped) != set(pending):
            return []
        for rank in stopped:
            if self.faults[rank].kind == STOPS[1]:
                self.resume(rank)
        return [rank for rank in stopped if self.faults[rank].kind == STOPS[2]]

    def resume(self, rank: int) -> None:
        self.struck[self.faults[rank].kind] += 1
        self.ranks.signal(rank, signal.SIGCONT)

    def attend_to_link(self, now: float) -> None:
        if self.cut is None or self.cluster is None or now < self.cut.at:
            return
        if not self.cut.done:
            self.cluster.set_link(self.cut.machine, False)
            self.cut.done = True
            machines = [machine_of(member) for member in self.members]
            if 0 < machines.count(self.cut.machine) < len(machines):
                self.struck[self.cut.kind] += 1
        elif self.cut.kind == CUTS[0] and now > self.cut.at + MOMENT_SECONDS:
            self.mend_link(before_a_round=False)

    def mend_link(self, before_a_round: bool) -> None:
        """before_a_round: that may begin with the link down."""
        if self.cut is None or (before_a_round and self.cut.done and self.cut.kind == CUTS[2]):
            return
        if self.cut.done and self.cluster is not None:
            self.cluster.set_link(self.cut.machine, True)
        self.cut = None


def state_at_the_end(_rank: int) -> State:
    return PLAYER.kept[-1][1]


def make_cluster() -> lab.Lab:
    """Raises lab.LabError if namespaces are not possible."""
    return lab.Lab(["sleep", "infinity"], [1] * MACHINES, "none", network="namespaces")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--kills", action="store_true", help="no other faults")
    options = parser.parse_args()
    kinds = KILLS if options.kills else (*KILLS, *STOPS, *CUTS)
    wrong, struck = [], Counter[str]()
    with make_cluster() as cluster:
        for seed in range(options.first, options.first + options.seeds):
            began = time.monotonic()
            game = Game(seed, seed % 3 == 2, kinds, cluster)
            try:
                game.play(options.rounds)
            except AssertionError as error:
                wrong.append(seed)
                print(f"seed {seed}: {error}", flush=True)
                with suppress(lab.LabError):
                    game.mend_link(before_a_round=False)
                game.ranks.kill()
            struck += game.struck
            print(f"seed {seed}: {time.monotonic() - began:.1f} s, {dict(game.struck)}", flush=True)
    print(f"{options.seeds} seeds, {dict(struck)}, {len(wrong)} seeds wrong {wrong or ''}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
