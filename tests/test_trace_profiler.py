"""Traces of torch.profiler beside those of ranks, as made-up files."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from written_traces import damaged, trace, write, written

SECOND = 1_780_000_000  # since 1970
BASE = 1_770_000_000  # from which the profiler counts
CLOCK = 84_939  # what the ranks' clocks show at SECOND


def profiled(rank: int, began: float = 1.25) -> dict[str, Any]:
    """A profile of a process 70: an operator that began so many seconds after SECOND, and an arrow from it."""
    began = (SECOND - BASE + began) * 1e6
    process = {"pid": 70, "tid": 71}
    return {
        "distributedInfo": {"backend": "fairring", "rank": rank},
        "baseTimeNanoseconds": BASE * 10**9,
        "traceEvents": [
            {"ph": "M", "name": "process_name", "ts": began, **process, "args": {"name": "python"}},
            {"ph": "M", "name": "process_sort_index", "ts": began, **process, "args": {"sort_index": 70}},
            {"ph": "X", "name": "aten::mm", "ts": began, "dur": 2.5, **process, "args": {"External id": 1}},
            {"ph": "s", "name": "fwdbwd", "cat": "fwdbwd", "id": 3, "ts": began, **process},
            {"ph": "X", "name": "PyTorch Profiler (0)", "ts": began, "dur": 9.0, "pid": "Spans", "tid": "Profiler"},
        ],
    }


def job(directory: Path, ranks: int = 4) -> None:
    dates: dict[str, Any] = {"now_ns": CLOCK * 10**9, "unix_ns": SECOND * 10**9}
    write(directory, *(written(rank, **dates) for rank in range(ranks)))


def merged(directory: Path, *profiles: dict[str, Any]) -> dict[str, Any]:
    files = [directory / f"profile{number}.json" for number in range(len(profiles))]
    for file, profile in zip(files, profiles, strict=True):
        file.write_text(json.dumps(profile))
    named = ("--profiler", *map(str, files)) if files else ()
    assert trace("merge", str(directory), *named, "-o", str(directory / "job.json")) == 0
    whole: dict[str, Any] = json.loads((directory / "job.json").read_text())
    return whole


def test_steps_that_follow_each_other_do_not_overlap_in_the_merged_trace(tmp_path) -> None:
    random = Random(1)
    began = CLOCK * 1_000_000_000
    steps = []
    for _ in range(1000):
        lasts = random.randrange(1, 10**7)
        steps.append({"ph": "X", "name": "RS1", "pid": 0, "tid": 500, "ts": began / 1000, "dur": lasts / 1000})
        began += lasts
    one = written(0, now_ns=CLOCK * 10**9, unix_ns=SECOND * 10**9 + 123_456_789)
    args = {"call": 2, "slice": 1, "level": 1, "released": 0.0}
    one["traceEvents"] = [{**step, "args": args} for step in steps]
    write(tmp_path, one)
    events = merged(tmp_path)["traceEvents"]
    assert len(events) == 1000
    for step, following in pairwise(events):
        assert abs(step["ts"] + step["dur"] - following["ts"]) < 1e-3, "microseconds"


def test_times_count_from_the_base_that_the_file_states(tmp_path) -> None:
    job(tmp_path)
    whole = merged(tmp_path, profiled(1), profiled(3, began=1.5))
    base = whole["baseTimeNanoseconds"] / 1e9
    dates = {(one["name"], one["pid"]): base + one["ts"] / 1e6 for one in whole["traceEvents"] if one["ph"] == "X"}
    assert dates["aten::mm", 4] == pytest.approx(SECOND + 1.25, abs=1e-6)
    assert dates["aten::mm", 5] == pytest.approx(SECOND + 1.5, abs=1e-6)
    assert dates["waits for staging", 0] == pytest.approx(SECOND - CLOCK + 1.0, abs=1e-6)
    assert 0 <= min(dates.values()) - base < 1


def test_profiles_are_processes_of_their_own_with_the_names_of_their_ranks(tmp_path) -> None:
    job(tmp_path)
    events = merged(tmp_path, profiled(1), profiled(3), profiled(3))["traceEvents"]
    names = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert {pid: name for pid, name in names.items() if pid >= 4} == {4: "rank 1: python", 5: "rank 3: python"}
    arrows = [one["id"] for one in events if one["ph"] == "s"]
    assert len(set(arrows)) == 3, "arrows of different files are not joined"
    assert not [one for one in events if one["pid"] == "Spans" or one["name"] == "process_sort_index"]


def test_a_profile_follows_its_machines_clock(tmp_path) -> None:
    """Machine 1's date is 7 s ahead. The clocks of both machines are the same, as heartbeats tell."""
    dates: dict[str, Any] = {"now_ns": CLOCK * 10**9, "unix_ns": SECOND * 10**9}
    ahead = {**dates, "unix_ns": (SECOND + 7) * 10**9}
    leads = [{"2": 1000}, {}, {"0": 1000}, {}]
    ranks = [written(rank, clock_leads_ns=leads[rank], **(dates if rank < 2 else ahead)) for rank in range(4)]
    write(tmp_path, *ranks)
    whole = merged(tmp_path, profiled(0), profiled(2, began=8.25))
    here, there = (one["ts"] for one in whole["traceEvents"] if one["name"] == "aten::mm")
    assert abs(here - there) < 1.0, "microseconds"


def test_a_gzipped_profile_is_read(tmp_path) -> None:
    job(tmp_path)
    packed = tmp_path / "profile.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(profiled(0)).encode()))
    assert trace("merge", str(tmp_path), "--profiler", str(packed), "-o", str(tmp_path / "job.json")) == 0
    assert "aten::mm" in (tmp_path / "job.json").read_text()


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("p.json", b"", "is no trace that torch.profiler has written while there was a process group"),
        ("p.json", json.dumps({"traceEvents": []}).encode(), "(KeyError: 'distributedInfo')"),
        ("p.json.gz", b"{}", "is not wholly gzipped"),
        ("p.json.gz", gzip.compress(b"{}" * 1000, mtime=0)[:-9], "is not wholly gzipped"),
        ("p.json", json.dumps(profiled(2)).encode(), "is of rank 2, whose clock is unknown: it has left no trace"),
    ],
)
def test_what_is_no_profile_of_the_job_is_refused_by_name(tmp_path, capsys, name, content, text) -> None:
    job(tmp_path, ranks=2)
    (tmp_path / name).write_bytes(content)
    assert trace("merge", str(tmp_path), "--profiler", str(tmp_path / name), "-o", str(tmp_path / "job.json")) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"fairring trace: {tmp_path / name} ")
    assert text in said
    assert not (tmp_path / "job.json").exists()


def test_a_damaged_profile_is_merged_or_refused_by_name(tmp_path, capsys) -> None:
    job(tmp_path)
    random = Random(1)
    refused = 0
    for _ in range(250):
        (tmp_path / "profile.json").write_text(json.dumps(damaged(profiled(1), random)))
        named = ("--profiler", str(tmp_path / "profile.json"), "-o", str(tmp_path / "job.json"))
        code = trace("merge", str(tmp_path), *named)
        assert code == 0 or "profile.json" in capsys.readouterr().err
        refused += code
    assert refused > 50, "most damage that counts is seen"


def test_an_explanation_takes_no_profile(tmp_path, capsys) -> None:
    job(tmp_path)
    with pytest.raises(SystemExit):
        trace("explain", str(tmp_path), "--profiler", "profile.json")
    assert "--profiler is for merge" in capsys.readouterr().err
