"""Traces of any job: tiny, idle, just begun, of one rank or machine, with failed calls."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from fairring.trace.blame import blame
from fairring.trace.clock import offsets
from fairring.trace.files import parse
from fairring.trace.findings import findings
from fairring.trace.records import Call, MessageWait, RankTrace, Receive, Send, Sighting, StagingWait, Step, TraceError
from fairring.trace.stuck import stuck
from fairring.trace.words import explain

JOBS = 1200
_TITLES = ("all_reduce SUM of 10 Float32", "all_reduce as int8 between sites SUM of 10 Float32", "broadcast", "")
_VERBS = (("RS0", 0), ("RS1", 1), ("AR1", 1), ("AG1", 1), ("AG0", 0), ("LD0", 0), ("ST0", 0), ("AG2", 2))


class Dice:
    """Draws the traces of a job's ranks. Times are few, so that many events fall on the same moment."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._world = self._random.randint(1, 4)
        machines = self._random.randint(1, self._world)
        self._machines = tuple(f"machine{rank % machines}" for rank in range(self._world))
        self._hosts = tuple(self._one_of("host", f"host{rank % machines}", "") for rank in range(self._world))
        self._moments = self._random.choice((1, 3, 1000))
        self._calls = self._random.randint(0, 8)

    def job(self) -> list[RankTrace]:
        ranks = self._random.sample(range(self._world), self._random.randint(1, self._world))
        return [self._trace(rank) for rank in sorted(ranks)]

    def _one_of(self, *values):
        return self._random.choice(values)

    def _often(self) -> bool:
        return self._random.random() < 0.93

    def _rank(self) -> int:
        return self._random.randrange(self._world)

    def _some_ranks(self) -> tuple[int, ...]:
        return tuple(self._rank() for _ in range(self._random.randint(0, 2)))

    def _time(self, after: float = 0.0) -> float:
        return after + self._random.randrange(self._moments) / 100

    def _several(self, make, most: int = 12) -> tuple[Any, ...]:
        return tuple(make() for _ in range(self._random.randint(0, most)))

    def _call(self, number: int) -> Call:
        submitted = self._time(after=1.0)
        begun = self._time(after=submitted)
        ended = self._time(after=begun) if self._often() else None
        return Call(number, self._one_of(*_TITLES), submitted, begun, ended, ended is not None and not self._often())

    def _step(self) -> Step:
        verb, level = self._one_of(*_VERBS)
        began = self._time(after=1.0)
        offered = self._time(after=began)
        heard = self._one_of(0.0, self._time(after=began))
        ready = self._one_of(None, self._time(after=max(offered, heard)))
        peer = self._one_of(None, self._rank())
        return Step(self._number(), self._slice(), verb, level, peer, began, offered, heard, ready, ready or 0.0)

    def _number(self) -> int:
        return self._random.randint(0, self._calls)

    def _slice(self) -> int:
        return self._random.randint(0, 4)

    def _send(self) -> Send:
        wanted = self._time(after=1.0)
        verb, level = self._one_of(*_VERBS)
        times = (wanted, self._time(after=wanted))
        return Send(self._number(), self._slice(), verb, level, self._rank(), self._one_of(0, 1 << 20), *times)

    def _receive(self) -> Receive:
        verb, _ = self._one_of(*_VERBS)
        moved = (self._rank(), self._one_of(0, 1 << 20), self._time(after=1.0))
        return Receive(self._number(), self._slice(), verb, *moved)

    def _trace(self, rank: int) -> RankTrace:
        numbers = [number for number in range(1, self._calls + 1) if self._often()]
        began = self._time(after=1.0)
        return RankTrace(
            rank=rank,
            group="0",
            machines=self._machines,
            hosts=self._hosts,
            leads={self._rank(): self._time() for _ in range(self._random.randint(0, 3))},
            packets={self._rank(): (self._one_of(0, 100), self._one_of(0, 3)) for _ in range(2)},
            staging_bytes=self._one_of(0, 50 << 20),
            now=self._time(after=1.0),
            unix_now=1e9,
            bytes_by_level={0: 0},
            ran=self._one_of(0.0, 1.0),
            queued=self._one_of(0.0, 1.0),
            error=self._one_of("", "", "rank 1 died"),
            calls={number: self._call(number) for number in numbers},
            steps=self._several(self._step, most=40),
            sends=self._several(self._send),
            receives=self._several(self._receive),
            staging=self._several(lambda: StagingWait(self._number(), self._slice(), 1, began, began + 1)),
            seen=self._several(lambda: Sighting(self._rank(), self._rank(), self._one_of(None, 0, 3), "", 9.0), most=2),
            missing=self._some_ranks(),
            messages=self._several(lambda: MessageWait(self._one_of(None, 0), self._one_of(True, False), 7, 1.0), 2),
            absent=self._some_ranks(),
            sites=tuple(f"site{int(one[-1]) // 2}" for one in self._machines),
        )


@pytest.mark.parametrize("part", range(4))
def test_whatever_ranks_have_recorded_is_told_of_or_refused(part: int) -> None:
    explained = 0
    for seed in range(part, JOBS, 4):
        job = Dice(seed).job()
        offsets(job)
        list(stuck(job))
        with suppress(TraceError):
            assert explain(job)
        with suppress(TraceError):
            findings(blame(job, last=1))
            explained += 1
    assert explained > 20, "many have two calls that all have ended"


def test_a_job_all_of_whose_calls_ended_at_once_is_refused() -> None:
    call = Call(1, "barrier", 1.0, 1.0, 2.0, False)
    one = replace(Dice(0).job()[0], calls={1: call, 2: replace(call, number=2)}, steps=(), error="")
    with pytest.raises(TraceError, match="over at once"):
        blame([one])


@pytest.mark.parametrize(
    "wrong", ['{"otherData": []}', '{"otherData": {"processor": []}}', "[1]", "7", '"text"', "null"]
)
def test_json_that_is_no_trace_is_refused(wrong: str) -> None:
    with pytest.raises(TraceError, match="no trace of a rank"):
        parse(wrong)
