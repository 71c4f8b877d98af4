"""Kills at random moments of random collectives: survivors go on, and agree on which steps have counted.

A step is one or two calls whose result is added to a log of who took part in it, and to a number that follows from the
log alone. So whoever knows the log of the steps that counted knows the number: another run, told the same membership.

    python tests/random_deaths.py --seeds 100 --first 0
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from ranks import Ranks

from fairring import members as fairring_members
from fairring.members import Mark

RANKS = 6  # the processes; not all are members from the start
PRIME = 1_000_003
TIMEOUT = timedelta(seconds=60)
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
class Death:
    step: int  # of the round; -1: the meeting
    moment: str

    def strikes(self, step: int, moment: str) -> None:
        if (step, moment) == (self.step, self.moment):
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Player:
    """One rank, and the states that it may have to go back to."""

    kept: list[tuple[Mark, State]] = field(default_factory=list)
    members: list[int] = field(default_factory=list)  # by rank of its group


PLAYER = Player()


def begin(_rank: int) -> str:
    dist.init_process_group(
        "fairring", store=dist.HashStore(), rank=0, world_size=1, timeout=TIMEOUT, enable_reconfigure=True
    )
    handle: str = c10d._get_reconfigure_handle()
    return handle


def begin_with_store(rank: int, port: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("fairring", store=store, rank=rank, world_size=RANKS, timeout=TIMEOUT)
    PLAYER.members = list(range(RANKS))


@dataclass
class Round:
    """What all members of a group are told."""

    uuid: int
    members: list[int]  # by rank
    steps: int
    deaths: dict[int, Death]
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
        if meet(round_, round_.deaths.get(rank)):
            report.answer = go_back()
        report.kept = PLAYER.kept[-1][1] if PLAYER.kept else None
        work(rank, catch_up(), round_.steps, round_.deaths.get(rank))
    except dist.DistBackendError as error:
        report.said = str(error)
    return report


def meet(round_: Round, death: Death | None) -> bool:
    """False: nobody is to leave."""
    death_at(death, -1, "before")
    if round_.handles is None:
        excluded = [index for index, member in enumerate(PLAYER.members) if member not in round_.members]
        if not excluded:
            return False
        dist.shrink_group(excluded, shrink_flags=c10d.SHRINK_ABORT if round_.aborts else c10d.SHRINK_DEFAULT)
    else:
        meeting = c10d._reconfigure(round_.uuid, round_.handles, timeout=TIMEOUT)
        death_at(death, -1, "under way")
        meeting.wait()
    PLAYER.members = round_.members
    death_at(death, -1, "after")
    return True


def death_at(death: Death | None, step: int, moment: str) -> None:
    if death is not None:
        death.strikes(step, moment)


def go_back() -> list[int | None] | None:
    """To the last state that counts."""
    last = fairring_members.last_complete()
    if last is None:
        return None
    mark = last.mark
    PLAYER.kept = [one for one in PLAYER.kept if mark is not None and one[0] <= mark]
    return last.calls_of_rank


def catch_up() -> State:
    """All take the state of one that has some; those that have one have the same."""
    has = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    has[dist.get_rank()] = 1 if PLAYER.kept else 0
    dist.all_reduce(has)
    states: list[Any] = [PLAYER.kept[-1][1] if PLAYER.kept else ((), 1)]
    if int(has.max()) > 0:
        dist.broadcast_object_list(states, group_src=int(has.argmax()))
    state: State = states[0]
    PLAYER.kept.append((fairring_members.mark(), state))
    return state


def work(rank: int, state: State, steps: int, death: Death | None) -> None:
    log, number = state
    for step in range(steps):
        result = take_step(rank, len(log), number, step, death)
        number = (number * 31 + result) % PRIME
        log = (*log, tuple(PLAYER.members))
        PLAYER.kept.append((fairring_members.mark(), (log, number)))
        death_at(death, step, "after")


def take_step(rank: int, number_of_step: int, number: int, step: int, death: Death | None) -> int:
    size = dist.get_world_size()
    elements = SIZES[number_of_step % len(SIZES)]
    share = torch.full((elements,), share_of(number_of_step, rank, number), dtype=torch.int64)
    root = number_of_step % size
    kind = kind_of(number_of_step)
    death_at(death, step, "before")
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
    death_at(death, step, "under way")
    for one in works:
        one.wait()
    total: torch.Tensor = sum(results[1:], results[0])
    assert bool((total == total[0]).all())
    return int(total[0])


# --- in the test


class Game:
    """The rounds of one seed; raises AssertionError where ranks disagree, or do not come back."""

    def __init__(self, seed: int, shrinks: bool) -> None:
        self.random = random.Random(seed)
        self.shrinks = shrinks
        machines = [{"FAIRRING_MACHINE": f"machine {rank // 2}"} for rank in range(RANKS)]
        self.ranks = Ranks(RANKS, {"TORCH_FR_BUFFER_SIZE": "0"}, machines)  # whose dumps take seconds of each rank
        self.alive = list(range(RANKS))
        self.uuid = 0
        self.deaths = 0
        if shrinks:
            self.handles = [""] * RANKS
            self.ranks.run(begin_with_store, self.ranks.store.port)
            self.members = list(range(RANKS))
        else:
            self.handles = self.ranks.run(begin)
            self.members = self.random.sample(self.alive, RANKS - 2)

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            self.round(self.chosen_deaths())
            self.members = self.next_members()
        reports = self.round({})
        assert all(report.said == "ok" for report in reports), [report.said for report in reports]
        states = self.ranks.run(state_at_the_end, on=sorted(self.members))
        assert all(one == states[0] for one in states), "parameters differ at the end"
        assert states[0][1] == number_of(states[0][0]), "another run with these members has other parameters"
        self.ranks.kill()

    def chosen_deaths(self) -> dict[int, Death]:
        victims = self.random.sample(self.members, min(self.random.choice((0, 1, 1, 1, 2)), len(self.members) - 1))
        return {victim: Death(self.random.choice((-1, 0, 1, 2, 3)), self.random.choice(MOMENTS)) for victim in victims}

    def next_members(self) -> list[int]:
        if self.shrinks:
            return [member for member in self.members if member in self.alive]
        some = [member for member in self.alive if self.random.random() < 0.8]
        return self.random.sample(some, len(some)) or self.alive[:1]

    def round(self, deaths: dict[int, Death]) -> list[Report]:
        self.uuid += 1
        handles = None if self.shrinks else [self.handles[member] for member in self.members]
        aborts = self.random.random() < 0.5
        told = Round(self.uuid, self.members, self.random.randint(2, 5), deaths, handles, aborts)
        outcomes = self.ranks.outcomes(self.ranks.start(play, told, on=sorted(self.members)))
        reports = []
        for member, outcome in zip(sorted(self.members), outcomes, strict=True):
            if outcome.word == "died":
                assert member in deaths, f"rank {member} died, which nobody had killed"
                self.alive.remove(member)
                self.deaths += 1
            else:
                assert outcome.word == "ok", f"rank {member}: {outcome}"
                reports.append(outcome.result)
        answers = [report.answer for report in reports if report.answer is not None]
        assert all(answer == answers[0] for answer in answers), f"ranks have learnt different things: {answers}"
        kept = [report.kept for report in reports if report.kept is not None]
        assert all(one == kept[0] for one in kept), f"other steps counted on other ranks: {kept}"
        return reports


def state_at_the_end(_rank: int) -> State:
    return PLAYER.kept[-1][1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    wrong, deaths = [], 0
    for seed in range(options.first, options.first + options.seeds):
        game = Game(seed, shrinks=seed % 3 == 2)
        try:
            game.play(options.rounds)
        except AssertionError as error:
            wrong.append(seed)
            print(f"seed {seed}: {error}", flush=True)
            game.ranks.kill()
        deaths += game.deaths
    print(f"{options.seeds} seeds, {deaths} kills, {len(wrong)} seeds wrong {wrong or ''}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
