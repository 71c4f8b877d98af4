"""Traces as files of any content: each is told of or refused, and none ends the program."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from test_docs import DOCS
from test_docs_examples import BLOCK
from trace_tables import tables
from written_traces import damaged, trace, write, written


def test_the_traces_of_a_job_are_told_of_and_merged(tmp_path, capsys) -> None:
    write(tmp_path, *(written(rank) for rank in range(4)))
    assert trace("explain", str(tmp_path)) == 0
    assert "Group 0, 4 ranks: 1 calls in " in capsys.readouterr().out
    assert trace("merge", str(tmp_path), "-o", str(tmp_path / "job.json")) == 0
    events = json.loads((tmp_path / "job.json").read_text())["traceEvents"]
    assert len(events) == 4 * len(written(0)["traceEvents"])


def test_the_documents_query_counts_the_calls_that_each_rank_was_the_last_to_make(tmp_path) -> None:
    query = next(text for language, _, text in BLOCK.findall((DOCS / "trace.md").read_text()) if language == "sql")
    for rank in range(4):
        one = written(rank)
        events = one["traceEvents"]
        for event, later in zip(events[1:4], (rank, rank, -rank), strict=True):
            event |= {"pid": rank, "ts": event["ts"] + 1e4 * later}
        for event in events[4:]:
            event |= {"pid": rank, "tid": 500}
        events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": 0, "args": {"name": "calls"}})
        write(tmp_path, one)
    assert trace("merge", str(tmp_path), "-o", str(tmp_path / "job.json")) == 0
    job = tables(json.loads((tmp_path / "job.json").read_text()))
    assert job.execute(query).fetchall() == [("rank 3", 2), ("rank 0", 1)]


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
    write(tmp_path, *(written(rank) for rank in range(4)), written(5, world=6, unix_ns=10**17))
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
        ({"hosts": []}, "4 machines and 0 hosts"),
        ({"sites": []}, "4 machines and 0 sites"),
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
