"""Traces of a real job in the lab: its clocks, and its reports of itself while it is stuck."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from forked_programs import forked_program
from lab_programs import needs_namespaces, program

from fairring.lab import Lab
from fairring.trace.clock import offsets
from fairring.trace.files import load
from fairring.trace.live import ask
from fairring.trace.records import RankTrace, TraceError
from fairring.trace.words import explain

TIMEOUT_SECONDS = 280  # less than pytest's own
LOOKS = 10_000  # at a live job, until it shows its state

pytestmark = needs_namespaces


def fairring(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fairring", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)


def look_until(directory: Path, seen: Callable[[list[RankTrace]], bool]) -> list[RankTrace]:
    ranks: list[RankTrace] = []
    for _ in range(LOOKS):
        answered, refused = ask(directory)
        assert (answered, refused) == (2, [])
        ranks = load(directory)["0"]
        with suppress(TraceError):  # there is nothing to explain yet
            if len(ranks) == 2 and seen(ranks):
                break
    return ranks


def test_a_live_job_tells_who_is_waited_for(tmp_path) -> None:
    pipe, traces = tmp_path / "pipe", tmp_path / "traces"
    os.mkfifo(pipe)
    with Lab(program("stuck", str(pipe)), [1, 1], env={"FAIRRING_TRACE": str(traces)}) as lab:
        for rank in range(2):
            lab.wait_for_output(rank, "ready", TIMEOUT_SECONDS)
        ranks = look_until(
            traces, lambda ranks: "waiting for rank 1" in explain(ranks) and offsets(ranks)[1].error is not None
        )
        told = explain(ranks)
        assert "rank 0 has been in call 2, all_reduce" in told
        assert "waiting for rank 1" in told
        assert "Not in call 2, all_reduce SUM of 10 Float32: rank 1" in told
        assert "its program is at stuck.py:" in told
        assert stat.S_IMODE(traces.stat().st_mode) == 0o700
        shown = fairring("why", str(traces))
        assert "Not in call 2, all_reduce SUM of 10 Float32: rank 1" in shown.stdout
        pipe.write_text("go on")
        assert lab.wait(TIMEOUT_SECONDS).exit_code == 0
    assert not list(traces.glob("*.socket")), "they go with their processes"
    ended = fairring("why", str(traces))
    assert ended.returncode == 1
    assert f"`fairring trace explain {traces}` reads the 2 traces" in ended.stderr

    ranks = load(traces)["0"]
    assert [sorted(one.calls) for one in ranks] == [[1, 2], [1, 2]]
    assert all(call.ended for one in ranks for call in one.calls.values())
    move = offsets(ranks)[1]  # all machines of a lab have one clock
    assert move.error is not None
    assert abs(move.seconds) <= move.error
    merged = tmp_path / "merged.json"
    assert fairring("trace", "merge", str(traces), "-o", str(merged)).returncode == 0
    events = json.loads(merged.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}


def test_a_job_is_recorded_as_a_whole_and_by_its_own_ranks(tmp_path) -> None:
    job = (
        sys.executable,
        "-m",
        "fairring",
        "lab",
        "--machines",
        "2",
        "--",
        *program("recorded", str(tmp_path / "own")),
    )
    recorded = fairring("trace", "--into", str(tmp_path / "job"), "--", *job)
    assert recorded.returncode == 0, recorded
    assert "Group 0, 2 ranks: " in recorded.stdout
    assert json.loads((tmp_path / "job" / "job.json").read_text())["traceEvents"]
    for directory, calls in (("job", [1, 2, 3, 4]), ("own", [1, 2, 3, 4])):
        assert [sorted(one.calls) for one in load(tmp_path / directory)["0"]] == [calls, calls]


def test_a_trace_that_finds_no_room_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with Lab(forked_program("full_disk"), [1, 1], env={"FAIRRING_TRACE": str(tmp_path)}) as lab:
        result = lab.wait(TIMEOUT_SECONDS)
    assert result.exit_codes == [0, 0], result.output
    for rank, text in enumerate(result.stderr):
        assert f"rank {rank} of group 0 can't write its trace" in text, text
        assert "(File too large), so these records are lost; FAIRRING_TRACE must name a directory with room" in text
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".socket"]


def test_the_exit_code_of_a_recorded_job_is_its_own(tmp_path) -> None:
    recorded = fairring("trace", "--into", str(tmp_path), "--", sys.executable, "-c", "raise SystemExit(7)")
    assert recorded.returncode == 7
    assert "has no trace" in recorded.stderr
    assert fairring("trace", "--", str(tmp_path / "nothing")).returncode == 127
