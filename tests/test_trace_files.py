"""Traces as files of any content: each is told of or refused, and none ends the program."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairring.trace import command


def event(name: str, began: float, seconds: float, **arguments: Any) -> dict[str, Any]:
    """An event as a rank writes it. Times: seconds."""
    return {"ph": "X", "name": name, "pid": 0, "tid": 0, "ts": began * 1e6, "dur": seconds * 1e6, "args": arguments}


def written(rank: int, group: str = "0", world: int = 4, **other: Any) -> dict[str, Any]:
    """The trace of a rank that has made two calls, in a world of machines of two ranks."""
    peer = (rank + 2) % world
    of_slice = {"call": 1, "slice": 1, "level": 1, "peer": peer}
    moved = {**of_slice, "bytes": 1 << 20, "of": "RS1"}
    return {
        "otherData": {
            "group": group,
            "rank": rank,
            "machines": [f"machine{one // 2}" for one in range(world)],
            "hosts": [f"host{one // 2}" for one in range(world)],
            "staging_bytes": 1 << 20,
            "weights": [100, 156],
            "now_ns": 10**10,
            "unix_ns": 10**18,
            "clock_leads_ns": {str(peer): 1000},
            "packets": {str(peer): {"sent": 100, "again": 1}},
            "bytes_by_level": {"0": 7, "1": 8},
            "processor": {"ran_ns": 10**9, "waited_ns": 10**8},
            "error": "",
            "seen": [{"by": rank, "rank": peer, "calls": 2, "last": "all_reduce", "silent_ns": 5 * 10**9}],
            "missing": [peer],
            "messages": [{"peer": peer, "sends": True, "tag": 7, "since_ns": 10**9}],
            "absent": [],
            "program": "train.py:57 in load",
            **other,
        },
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}},
            event("all_reduce", 1.0, 0.5, call=1, begun=1.1e6),
            event("all_reduce", 2.0 + 0.1 * rank, 0.9, call=2, begun=2.5e6),
            event("all_reduce", 4.0, 0.9, call=3, begun=4e6, open=True),
            event("RS1", 2.5, 0.2, **{**of_slice, "call": 2}, offered=2.6e6, heard=2.65e6, released=2.7e6),
            event("to rank 2", 1.1, 0.1, **moved, offered=1.15e6),
            event("from rank 2", 1.1, 0.2, **moved),
            event("waits for staging", 1.0, 0.05, call=1, slice=1, level=1, bytes=1 << 20),
        ],
    }


def write(directory: Path, *traces: dict[str, Any]) -> None:
    for one in traces:
        other = one["otherData"]
        (directory / f"{other['group']}-rank{other['rank']}.json").write_text(json.dumps(one))


def trace(*arguments: str) -> int:
    """The exit code of `fairring trace`."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments, argparse.Namespace(parser=parser, command=[])))


VALUES: tuple[Any, ...] = (
    None,
    -1,
    0,
    7,
    10**30,
    1.5,
    float("nan"),
    float("inf"),
    "x",
    "",
    True,
    [],
    [1],
    {},
    {"a": 1},
)


def damaged(whole: Any, random: Random) -> Any:
    """The same JSON with another value, or nothing, in one place."""
    places: list[tuple[Any, Any]] = []

    def look(part: Any) -> None:
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            places.append((part, key))
            if isinstance(value, dict | list):
                look(value)

    whole = json.loads(json.dumps(whole))
    look(whole)
    part, key = random.choice(places)
    if random.random() < 0.2:
        del part[key]
    else:
        part[key] = random.choice(VALUES)
    return whole


def test_the_traces_of_a_job_are_told_of_and_merged(tmp_path, capsys) -> None:
    write(tmp_path, *(written(rank) for rank in range(4)))
    assert trace("explain", str(tmp_path)) == 0
    assert "Group 0, 4 ranks: 1 calls in " in capsys.readouterr().out
    assert trace("merge", str(tmp_path), "-o", str(tmp_path / "job.json")) == 0
    events = json.loads((tmp_path / "job.json").read_text())["traceEvents"]
    assert len(events) == 4 * len(written(0)["traceEvents"])


@pytest.mark.parametrize("group", ["pp[0-3]", "tp*", "a?b"])
def test_the_name_of_a_group_is_no_pattern(tmp_path, group: str) -> None:
    write(tmp_path, written(0, group), written(1, group), written(0, "pp0"), written(1, "tpa"))
    assert trace("merge", str(tmp_path), "--group", group, "-o", str(tmp_path / "job.json")) == 0
    events = json.loads((tmp_path / "job.json").read_text())["traceEvents"]
    assert [one["args"]["name"] for one in events if one["ph"] == "M"] == ["rank 0", "rank 1"]


def test_a_group_that_stands_still_is_told_of_before_the_one_with_most_calls(tmp_path, capsys) -> None:
    late: dict[str, Any] = {"missing": [], "messages": [], "absent": [3]}
    write(tmp_path, *(written(rank) for rank in range(4)), *(written(rank, "tp", **late) for rank in range(3)))
    assert trace("explain", str(tmp_path)) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("Group tp: rank 3 has not made the group, for which rank 0, 1, 2 waits")
    assert any(line.startswith("Group 0, 4 ranks: ") for line in others)
    assert trace("explain", str(tmp_path), "--group", "0") == 0
    assert "Group tp" not in capsys.readouterr().out


def test_a_title_that_is_cut_within_a_letter_is_read(tmp_path) -> None:
    for rank in range(2):
        text = json.dumps(written(rank)).replace('"all_reduce"', '"all_reduc\\u00e9"')
        (tmp_path / f"0-rank{rank}.json").write_bytes(text.encode().replace(b"\\u00e9", b"\xc3"))
    assert trace("explain", str(tmp_path)) == 0
    assert trace("merge", str(tmp_path), "-o", str(tmp_path / "job.json")) == 0


def test_traces_that_a_larger_job_has_left_are_passed_over(tmp_path, capsys) -> None:
    write(tmp_path, *(written(rank) for rank in range(4)), written(5, world=6, unix_ns=10**17, weights=[]))
    assert trace("explain", str(tmp_path)) == 0
    assert "Group 0, 4 ranks: " in capsys.readouterr().out
    assert trace("merge", str(tmp_path), "-o", str(tmp_path / "job.json")) == 0
    events = json.loads((tmp_path / "job.json").read_text())["traceEvents"]
    assert len(events) == 4 * len(written(0)["traceEvents"])


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"rank": 9}, "rank 9 of 4"),
        ({"seen": [{"by": 0, "rank": 99}]}, "rank 99 of 4"),
        ({"missing": [4]}, "rank 4 of 4"),
        ({"weights": [0, 0]}, "weights (0, 0) of 2 machines"),
        ({"weights": [1, 2, 3]}, "weights (1, 2, 3) of 2 machines"),
        ({"hosts": []}, "4 machines and 0 hosts"),
        ({"now_ns": 10**400}, "OverflowError"),
    ],
)
def test_traces_with_what_is_not_in_the_group_are_refused(tmp_path, capsys, other, text) -> None:
    write(tmp_path, {**written(0), "otherData": {**written(0)["otherData"], **other}})
    assert trace("explain", str(tmp_path)) == 1
    assert text in capsys.readouterr().err


def test_a_damaged_trace_is_told_of_or_refused_by_name(tmp_path, capsys) -> None:
    random = Random(1)
    refused = 0
    for _ in range(250):
        write(tmp_path, *(written(rank) for rank in range(4)))
        (tmp_path / "0-rank1.json").write_text(json.dumps(damaged(written(1), random)))
        for action in (["explain"], ["merge", "-o", str(tmp_path / "job.json")]):
            code = trace(action[0], str(tmp_path), *action[1:])
            said = capsys.readouterr()
            assert code == 0 or "0-rank1.json" in said.err, said.err
            refused += code
    assert refused > 100, "most damage is seen"
