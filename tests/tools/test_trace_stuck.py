"""Jobs that stand still for each reason that docs/trace.md lists, in the lab: any rank's trace names the culprit."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab_programs import needs_namespaces, program

from fairring.lab import Lab
from fairring.trace.files import load
from fairring.trace.live import ask
from fairring.trace.records import TraceError
from fairring.trace.words import explain_job

MACHINES = [2, 2]
CULPRIT = 3
PATIENCE_SECONDS = 600.0  # for what takes some seconds on a quiet machine
LONG_SECONDS = "3600"  # no silence is an error here

pytestmark = [needs_namespaces, pytest.mark.slow, pytest.mark.timeout(2 * PATIENCE_SECONDS)]


def stop(lab: Lab) -> None:
    lab.signal(signal.SIGSTOP, CULPRIT)


def cut(lab: Lab) -> None:
    lab.set_link(1, False)


def crash(lab: Lab) -> None:
    """A machine without power says no farewell."""
    cut(lab)
    for rank in (2, 3):
        lab.signal(signal.SIGKILL, rank)


@dataclass(frozen=True)
class Stuck:
    """before: as stuck_kinds.py has it. happens: once the culprit stands there. told: by each of these ranks."""

    before: str
    told: str
    happens: Callable[[Lab], None] = lambda _: None
    by: tuple[int, ...] = (0, 1, 2)


SILENT = "has given rank [0-9, ]+ no sign of life for .* s"
CASES = {
    "a rank has not made a call": Stuck(
        "call",
        r"Not in call 2, all_reduce.*: rank 3 \(.+\); its last was call 1, all_reduce",
    ),
    "a process is stopped": Stuck("call", rf"rank 3 \(.+\) {SILENT}: its process is stopped", stop),
    "a machine is cut off": Stuck("call", rf"machine 1 \(rank 2, 3\) {SILENT}: it is down, or the net", cut, (0, 1)),
    "a machine is down": Stuck("call", rf"machine 1 \(rank 2, 3\) {SILENT}: it is down, or the net", crash, (0, 1)),
    "a message is not sent": Stuck("message", r"rank \d has waited for a message from rank 3 \(.+\) \(tag 7\) for "),
    "a message is not received": Stuck(
        "receive", r"rank \d has waited for rank 3 \(.+\) to receive the message that it sends \(tag 7\) for "
    ),
    # Rank 0 waits in torch's store for all ranks to come, and has no group yet to tell of.
    "a rank has not made the group": Stuck(
        "group", r"rank (0, )?3 has not made the group, for which rank \d waits", by=(1, 2)
    ),
    "a rank has not made a later group": Stuck(
        "later group", r"Group 1: rank 3 has not made the group, for which rank \d waits"
    ),
}


def told_by(rank: int, directory: Path) -> str:
    """What its traces tell, without any other rank's."""
    with suppress(TraceError):  # there is no trace yet, or nothing to explain
        own = {name: [one for one in ranks if one.rank == rank] for name, ranks in load(directory).items()}
        groups = {name: ranks for name, ranks in own.items() if ranks}
        return explain_job(groups, None) if groups else ""
    return ""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_of_the_other_ranks_names_the_culprit(case: Stuck, tmp_path) -> None:
    env = {"FAIRRING_TRACE": str(tmp_path), "FAIRRING_HEARTBEAT_TIMEOUT": LONG_SECONDS}
    with Lab(program("stuck_kinds", case.before), MACHINES, env=env, grace=float(LONG_SECONDS)) as lab:
        lab.wait_for_output(CULPRIT, f"holds: {case.before}\n", PATIENCE_SECONDS)
        case.happens(lab)
        end = time.monotonic() + PATIENCE_SECONDS
        told = dict.fromkeys(case.by, "")
        while not all(re.search(case.told, text) for text in told.values()):
            assert time.monotonic() < end, f"not all say {case.told!r}: {told}"
            ask(tmp_path)
            told = {rank: told_by(rank, tmp_path) for rank in case.by}
