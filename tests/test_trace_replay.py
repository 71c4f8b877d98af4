"""The time of calls with something changed, and of machines' ports, against what is computed by hand."""

from __future__ import annotations

import pytest

from fairring.trace.ports import Passage, Port, busiest, covered, least_rates
from fairring.trace.records import Call
from fairring.trace.replay import Replay

STEPS = 4


def calls_of(times: list[tuple[list[float], float]]) -> list[dict[int, Call]]:
    """times: of each call, when each rank makes it, and when it is over."""
    return [
        {rank: Call(number, "", made, made, ended, False) for rank, made in enumerate(submitted)}
        for number, (submitted, ended) in enumerate(times)
    ]


def steps_of(made: list[list[float]], ends: list[float], seconds: float) -> list[dict[int, Call]]:
    """A call at 0, and then STEPS steps of these calls: seconds since the step's begin, and the whole step's."""
    begins = [step * seconds for step in range(STEPS)]
    return calls_of(
        [
            ([0.0] * len(made[0]), 0.0),
            *(
                ([begin + at for at in call], begin + end)
                for begin in begins
                for call, end in zip(made, ends, strict=True)
            ),
        ]
    )


def test_a_small_call_may_be_over_before_an_older_large_one() -> None:
    calls = calls_of([([0.0], 1.0), ([1.0], 5.0), ([2.0], 3.0), ([5.5], 6.0)])
    assert Replay(calls).seconds() == pytest.approx(5.0)


def test_with_nothing_changed_the_calls_take_what_they_took() -> None:
    calls = steps_of([[1.0, 1.0], [2.0, 4.0]], [3.0, 4.5], 4.5)
    assert Replay(calls, 2).seconds() == pytest.approx(STEPS * 4.5)


def test_a_rank_that_computes_makes_its_next_call_no_earlier_if_the_one_before_is_over_earlier() -> None:
    calls = steps_of([[1.0, 1.0], [2.0, 4.0]], [3.0, 4.5], 4.5)
    saved = [1.0, 0.0] * STEPS
    assert Replay(calls, 2).seconds(saved=saved) == pytest.approx(STEPS * 4.5)


def test_a_rank_that_waits_for_a_call_makes_its_next_one_earlier_if_that_is_over_earlier() -> None:
    calls = steps_of([[1.0, 1.0], [2.0, 4.0]], [3.0, 4.5], 4.5)
    saved = [0.0, 0.25] * STEPS
    assert Replay(calls, 2).seconds(saved=saved) == pytest.approx(STEPS * 4.25)


def test_without_a_late_rank_calls_come_with_the_others() -> None:
    calls = steps_of([[1.0, 1.0], [2.0, 4.0]], [1.5, 4.5], 4.5)
    assert Replay(calls, 2).seconds(without=[1]) == pytest.approx(STEPS * 2.5)


def test_calls_that_come_together_overlap_as_far_as_ports_allow() -> None:
    calls = steps_of([[1.0, 1.0], [1.5, 4.0]], [3.0, 6.0], 6.0)
    replay = Replay(calls, 2)
    assert replay.took == pytest.approx([2.0, 2.0] * STEPS)
    assert replay.seconds(without=[1]) == pytest.approx(STEPS * 5.0), "one after the other"
    assert replay.seconds(without=[1], busy=[0.75, 0.75] * STEPS) == pytest.approx(STEPS * 3.75)
    assert replay.seconds(without=[1], busy=[0.1, 0.1] * STEPS) == pytest.approx(STEPS * 3.5), "one's own time"


def test_spans_that_overlap_are_counted_once() -> None:
    assert covered([]) == 0.0
    assert covered([(0.0, 2.0), (1.0, 1.5), (1.0, 3.0), (5.0, 6.0), (7.0, 6.5)]) == pytest.approx(4.0)


def test_a_port_carries_at_least_what_it_carried_while_a_message_was_under_way() -> None:
    messages = [
        Passage("a", "b", 0, 100, 0.0, 1.0),
        Passage("a", "c", 0, 200, 0.5, 2.0),
        Passage("c", "b", 1, 60, 4, 5),
    ]
    assert least_rates(messages) == pytest.approx(
        {Port("a", "out"): 150.0, Port("b", "in"): 80.0, Port("c", "in"): 200 / 1.5, Port("c", "out"): 60.0}
    )


def test_the_busiest_port_is_the_one_that_takes_longest() -> None:
    messages = [
        Passage("a", "b", 3, 100, 0.0, 1.0),
        Passage("a", "c", 3, 200, 0.5, 2.0),
        Passage("c", "b", 4, 60, 4, 5),
    ]
    most = {Port("a", "out"): 1000.0, Port("b", "in"): 100.0, Port("c", "in"): 1000.0}
    assert busiest(messages, most, [3, 4, 5]) == pytest.approx([1.0, 0.6, 0.0])
