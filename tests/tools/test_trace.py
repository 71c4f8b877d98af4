"""Traces: one clock, and the right rank, machine and cause, on traces that were made up and on those of the lab."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from made_traces import LATENCY, Job

from fairring.trace.blame import blame
from fairring.trace.clock import offsets
from fairring.trace.files import load, parse
from fairring.trace.findings import Finding, findings
from fairring.trace.records import Call, MessageWait, RankTrace, Sighting, StagingWait, TraceError
from fairring.trace.stuck import stuck
from fairring.trace.words import explain


def named(job: Job) -> list[tuple[str, str]]:
    return [(one.kind, one.who) for one in findings(blame(job.traces()))]


def first(job: Job) -> Finding:
    return findings(blame(job.traces()))[0]


def per_call(job: Job) -> float:
    found = blame(job.traces())
    return found.span / found.calls


def test_nobody_is_named_where_all_are_alike() -> None:
    assert named(Job()) == []
    assert named(Job(compute=0.0)) == [], "all of the time is communication"


def test_a_rank_that_computes_longer_is_named() -> None:
    assert named(Job(slow_compute={3: 0.2})) == [("late", "rank 3")]


def test_what_would_be_without_it_is_what_is_without_it() -> None:
    job = Job(slow_compute={3: 0.2})
    found = blame(job.traces())
    without = (found.span - first(job).seconds) / found.calls
    assert without == pytest.approx(per_call(Job()), rel=0.02)


def test_a_machine_whose_ranks_are_all_late_is_named() -> None:
    assert named(Job(slow_compute={2: 0.2, 3: 0.2})) == [("late", "machine host1")]


def test_a_rank_whose_processor_is_taken_is_told_from_one_that_computes() -> None:
    assert named(Job(slow_compute={3: 0.2}, queued={3: 0.4})) == [("processor", "rank 3")]


def test_where_all_cores_are_crowded_the_rank_that_queues_longest_is_told() -> None:
    crowded = [replace(one, ran=0.1, queued=0.2) for one in Job(slow_compute={3: 0.2}).traces()]
    assert [one.kind for one in findings(blame(crowded))] == ["late"]
    crowded[3] = replace(crowded[3], ran=0.3, queued=1.1)
    assert [one.kind for one in findings(blame(crowded))] == ["processor"]


def test_a_machine_with_a_slow_link_is_named() -> None:
    job = Job(slow_rate={1: 2e7})
    assert named(job) == [("link", "machine host1")]
    found = blame(job.traces())
    without = (found.span - first(job).seconds) / found.calls
    assert without == pytest.approx(per_call(Job()), rel=0.1)


def test_the_way_between_sites_is_named_and_the_format_that_would_change_it() -> None:
    job = Job(machines=2, ranks=1, sites=2, compute=0.05, rate=4e7, title="all_reduce SUM of 2000000 Float32")
    assert named(job) == [("crossing", "the way between sites")]
    found = first(job)
    shares = dict(re.findall(r"(\w+) (\d+)%", found.text))
    for form, times in (("bf16", 2.0), ("int8", 3.94), ("int4", 7.76)):
        faster = replace(job, call_bytes=int(job.call_bytes / times), title="all_reduce as int4 between sites SUM")
        assert int(shares[form]) / 100 == pytest.approx(1 - per_call(faster) / per_call(job), abs=0.02)
    job.title = "all_reduce as int8 between sites AVG of 2000000 Float32"
    assert re.findall(r"(\w+) \d+%", first(job).text) == ["int4"], "the others would be no less"
    job.title = "broadcast of 2000000 Float32"
    assert "of the time less" not in first(job).text
    job.sites = 1
    assert named(job) == []


def test_a_machine_is_not_slow_for_being_alone_at_its_site() -> None:
    job = Job(machines=4, ranks=1, site_of=(0, 0, 0, 1), site_rate=1e7)
    assert named(job) == [("crossing", "the way between sites")]
    job.slow_rate = {1: 2e6}
    assert ("link", "machine host1") in named(job)
    job = Job(machines=4, ranks=1, sites=2, site_rate=1e7, slow_rate={3: 2e6})
    assert ("link", "machine host3") in named(job), "between the same sites others are quicker"


def test_no_format_takes_off_what_calls_wait_for_the_latency() -> None:
    job = Job(machines=2, ranks=1, sites=2, compute=0.05, title="all_reduce SUM of 1024 Float32")
    job.call_bytes, job.site_latency = 4096, 0.05
    assert named(job) == [("crossing", "the way between sites")]
    assert "of the time less" not in first(job).text


@pytest.mark.parametrize(
    ("title", "forms"),
    [
        ("all_reduce AVG of 4000000 BFloat16", ["int8", "int4"]),
        ("all_reduce AVG of 4000000 Float16", ["int8", "int4"]),
        ("all_reduce SUM of 1000000 Float64", ["bf16", "int8", "int4"]),
        ("all_reduce SUM of 3 tensors, the first of 5 Int32 on CUDA", []),
        ("all_reduce SUM of 3 tensors, the first of 5 Float32, 6 Float16: 11 elements in all", ["int8", "int4"]),
        ("all_reduce SUM of 5 Float32 as 4 x 4, 1 sparse", []),
        ("all_reduce MAX of 2000000 Float32", []),
    ],
)
def test_floats_of_any_dtype_can_cross_in_a_format(title: str, forms: list[str]) -> None:
    job = Job(machines=2, ranks=1, sites=2, compute=0.05, rate=4e7, title=title)
    assert re.findall(r"(\w+) \d+%", first(job).text) == forms


def test_packets_that_went_again_are_told_of_where_a_machine_has_more_of_them() -> None:
    again = "of its packets went again"
    assert again in first(Job(slow_rate={1: 2e7}, again={1: 200})).text
    assert named(Job(slow_rate={1: 2e7}, again={1: 400})) == [("loss", "machine host1")]
    assert named(Job(slow_rate={1: 2e7}, again={1: 100})) == [("link", "machine host1")], "as a full queue loses"
    assert again not in first(Job(slow_rate={1: 2e7}, again={0: 200, 1: 200, 2: 200})).text


def test_steps_that_take_no_time_at_all_are_no_sums() -> None:
    ranks = [
        replace(one, steps=tuple(replace(step, offered=step.began - 1e-9, ready=step.began) for step in one.steps))
        for one in Job().traces()[:2]
    ]
    ranks[0] = replace(ranks[0], steps=())
    assert [one.kind for one in findings(blame(ranks))] == []


def test_a_rank_that_alone_has_sums_is_not_slow() -> None:
    ranks = Job(compute=0.0, slow_sums={4: 0.05}).traces()
    others = [one if one.rank == 4 else replace(one, steps=()) for one in ranks]
    assert [one.kind for one in findings(blame(others))] == []


def test_a_rank_that_sums_slowly_is_named() -> None:
    assert named(Job(compute=0.02, slow_sums={4: 0.05})) == [("sums", "rank 4")]


def test_waits_for_small_staging_are_told() -> None:
    ranks = Job().traces()
    ranks[3] = replace(ranks[3], staging=(StagingWait(1, 1, 1, 0.0, 100.0),))
    assert "waited for staging" not in explain(ranks), "its memory is the default"
    ranks[3] = replace(ranks[3], staging_bytes=2 << 20)
    assert "Slices of rank 3 (host1) waited for staging for 100% of the time" in explain(ranks)
    assert "FAIRRING_TOTAL_MEMORY gives it 2 MiB instead of the default 50" in explain(ranks)


def test_the_clocks_of_machines_may_differ_by_anything() -> None:
    job = Job(slow_compute={3: 0.2}, ahead={1: 1000.0, 2: -5.0})
    moves = offsets(job.traces())
    for rank, ahead in enumerate((0.0, 0.0, 1000.0, 1000.0, -5.0, -5.0)):
        assert moves[rank].seconds == pytest.approx(-ahead, abs=1e-9)
        assert moves[rank].error == pytest.approx(LATENCY if rank > 1 else 0.0, abs=1e-9)
    assert named(job) == [("late", "rank 3")]


def test_a_rank_that_heard_no_heartbeat_is_placed_by_its_date() -> None:
    ranks = [replace(one, leads={}) for one in Job(ahead={1: 7.0}).traces()]
    assert offsets(ranks)[2].error is None
    assert offsets(ranks)[2].seconds == pytest.approx(-7.0)
    assert "by the machines' own dates" in explain(ranks)


def test_the_calls_of_a_step_are_those_after_which_titles_repeat() -> None:
    def titled(number: int) -> str:
        return f"bucket {number % 3}" if number > 5 else f"bucket {number} of the first step"

    ranks = [
        replace(one, calls={number: replace(call, title=titled(number)) for number, call in one.calls.items()})
        for one in Job(calls=22).traces()
    ]
    assert blame(ranks).period == 3
    assert "3 calls a step" in explain(ranks)


def test_a_call_that_not_all_have_made_is_told_of() -> None:
    ranks = []
    for one in Job(calls=5).traces():
        calls = dict(one.calls)
        if one.rank == 4:
            del calls[5]
        else:
            calls[5] = replace(calls[5], ended=None)
        ranks.append(replace(one, calls=calls, steps=tuple(step for step in one.steps if step.call < 5)))
    told = explain(ranks)
    assert "rank 0, 1, 2, 3, 5 have been in call 5, all_reduce" in told
    assert "Not in call 5, all_reduce: rank 4 (host2); its last was call 4, all_reduce" in told


def standing_still(seconds: float = 10.0) -> list[RankTrace]:
    """Three machines of two ranks in their second call, for that long, except for rank 5."""
    ranks = Job(calls=1).traces()
    now = 100.0
    second = Call(2, "all_reduce", now - seconds, now - seconds, None, False)
    return [replace(one, now=now, calls={**one.calls, **({2: second} if one.rank < 5 else {})}) for one in ranks]


def told(one: RankTrace) -> str:
    return "\n".join(stuck([one]))


def test_a_rank_alone_names_who_is_furthest_behind_by_what_its_neighbours_say() -> None:
    one = replace(
        standing_still()[0], seen=(Sighting(1, 5, 1, "all_reduce", 0.0), Sighting(0, 1, 2, "all_reduce", 0.4))
    )
    assert "Not in call 2, all_reduce: rank 5 (host2); its last was call 1, all_reduce." in told(one)


def test_heartbeats_that_are_older_than_a_call_say_nothing_of_it() -> None:
    one = replace(standing_still(seconds=0.5)[0], seen=(Sighting(1, 5, 1, "all_reduce", 0.0),))
    assert "Not in call" not in told(one)


def test_a_silent_rank_is_told_from_a_silent_machine() -> None:
    own, of_neighbour = Sighting(1, 5, None, "", 9.0), Sighting(1, 5, 2, "", 7.0)
    assert "rank 5 (host2) has given rank 1 no sign of life for 9 s" in told(replace(standing_still()[0], seen=(own,)))
    machine = (own, of_neighbour, Sighting(0, 4, 2, "", 8.0))
    said = told(replace(standing_still()[0], seen=machine))
    assert "machine host2 (rank 4, 5) has given rank 0, 1 no sign of life for 9 s" in said
    assert "its process is stopped" not in said
    by_its_mate = (Sighting(4, 5, None, "", 9.0), Sighting(0, 4, 2, "", 8.0))
    assert "its process is stopped" in told(replace(standing_still()[0], seen=by_its_mate))
    assert "no sign of life" not in told(replace(standing_still()[0], seen=(replace(own, silent=1.0),)))


def test_messages_that_are_waited_for_are_told_of() -> None:
    waits = (MessageWait(5, False, 7, 40.0), MessageWait(5, False, 8, 90.0), MessageWait(None, False, 0, 99.0))
    said = told(replace(standing_still()[0], messages=(*waits, MessageWait(3, True, 1, 95.0))))
    assert "rank 0 has waited for a message from rank 5 (host2) (tag 7) for 60 s." in said
    assert "(tag 8)" not in said, "the longest wait of its kind is enough"
    assert "for a message from any rank (tag 0) for 1 s." in said
    assert "rank 0 has waited for rank 3 (host1) to receive the message that it sends (tag 1) for 5 s." in said


def test_where_the_program_of_a_rank_stands_is_told_of() -> None:
    ranks = standing_still()
    ranks[5] = replace(ranks[5], program="train.py:57 in load")
    said = "\n".join(stuck(ranks))
    assert (
        "Not in call 2, all_reduce: rank 5 (host2); its last was call 1, all_reduce; its program is at train.py:57"
        in said
    )


def test_who_has_the_calls_on_cuda_tensors_is_told_of_once() -> None:
    way = "reductions and all-gathers of CUDA tensors are NCCL's as a whole: the trial did not show Fairring faster"
    for job in (Job().traces(), [replace(one, calls={}, steps=()) for one in Job().traces()]):
        assert explain([replace(one, device_way=way) for one in job]).splitlines().count(way) == 1


def test_a_group_that_not_all_have_made_is_told_of() -> None:
    one = replace(Job().traces()[1], calls={}, steps=(), absent=(0, 5), hosts=("",) * 6)
    assert "rank 0, 5 has not made the group, for which rank 1 waits" in told(one)


def test_ranks_without_a_trace_are_told_of() -> None:
    assert "5 of 6 ranks" in explain(Job().traces()[:5])


def test_one_rank_alone_says_whom_it_waited_for() -> None:
    own = Job(slow_compute={3: 0.2}).traces()[2]
    assert "1 of 6 ranks" in explain([own])
    assert "Alone they can't tell whether another rank is late" in explain([own])
    assert "`fairring why DIR` asks them" in explain([own])
    assert "This rank waited, by step, for rank 3 (host1) 100 ms" in explain([own])


def test_what_is_no_trace_is_refused(tmp_path) -> None:
    for text in ("", "[]", "{}", json.dumps({"traceEvents": [], "otherData": {}})):
        with pytest.raises(TraceError, match="no trace of a rank"):
            parse(text)
    with pytest.raises(TraceError, match="FAIRRING_TRACE"):
        load(tmp_path)
