"""What any rank's trace alone says of a job that stands still: who it is that all wait for."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_programs import needs_namespaces, program

from fairring.lab import Lab
from fairring.trace.live import ask
from fairring.trace.records import TraceError, load
from fairring.trace.words import explain

TIMEOUT_SECONDS = 280  # less than pytest's own
LOOKS = 10_000  # at the job, until it says what is looked for

pytestmark = [needs_namespaces, pytest.mark.slow]


class StuckJob:
    def __init__(self, lab: Lab, pipe: Path, traces: Path) -> None:
        self._lab, self._pipe, self.traces = lab, pipe, traces

    def await_kind(self, kind: str) -> None:
        """Until the culprit stands still for this."""
        self._lab.wait_for_output(3, kind, TIMEOUT_SECONDS)

    def go_on(self) -> None:
        self._pipe.write_text("go on")

    def told_by(self, ranks: tuple[int, ...], pattern: str) -> dict[int, str]:
        """What each of these ranks says by itself, once all say it."""
        told: dict[int, str] = {}
        for _ in range(LOOKS):
            ask(self.traces)
            try:
                told = {one.rank: explain([one]) for one in load(self.traces)["0"] if one.rank in ranks}
            except TraceError:
                continue
            if len(told) == len(ranks) and all(re.search(pattern, text) for text in told.values()):
                return told
        raise AssertionError(f"{pattern!r} is not in what all of {ranks} say: {told}")

    def stop(self) -> None:
        self.signal(signal.SIGSTOP)
        next(self.traces.glob(f"*-{self._lab.pid(3)}.socket")).unlink()  # who is asked keeps one waiting

    def signal(self, signum: int) -> None:
        self._lab.signal(signum, 3)

    def set_link(self, up: bool) -> None:
        self._lab.set_link(1, up)


@pytest.fixture
def job(tmp_path) -> Iterator[StuckJob]:
    pipe, traces = tmp_path / "pipe", tmp_path / "traces"
    os.mkfifo(pipe)
    with Lab(program("stuck_kinds", str(pipe)), [2, 2], env={"FAIRRING_TRACE": str(traces)}) as lab:
        yield StuckJob(lab, pipe, traces)
        assert lab.wait(TIMEOUT_SECONDS).exit_code == 0


def test_every_rank_names_the_culprit_of_each_kind(job: StuckJob) -> None:
    job.await_kind("absent")
    job.told_by((1, 2), r"rank (0, )?3 has not made the group")  # rank 0 waits in torch's store for all to come
    job.go_on()

    job.await_kind("skip")
    job.told_by((0, 1, 2), r"Not in call 2, all_reduce.*: rank 3 \(.*\); its last was call 1, all_reduce")
    job.go_on()

    job.await_kind("exchange")
    job.told_by((0, 1, 2), r"Not in call 3, all_to_all_single.*: rank 3 ")
    job.go_on()

    job.await_kind("receive")
    job.told_by((0, 1, 2), r"rank \d has waited for a message from rank 3 \(.*\) \(tag 7\) for ")
    job.go_on()

    job.await_kind("send")
    job.told_by((0, 1, 2), r"rank \d has waited for rank 3 \(.*\) to receive the message that it sends")
    job.go_on()

    job.await_kind("stop")
    job.stop()
    job.told_by((0, 1, 2), r"rank 3 \(.*\) has given rank \d no sign of life for .*: its process is stopped")
    job.signal(signal.SIGCONT)
    job.go_on()

    job.await_kind("cut")
    job.set_link(False)
    job.told_by((0, 1), r"machine 1 \(rank 2, 3\) has given rank .* no sign of life for ")
    job.set_link(True)
    job.go_on()
