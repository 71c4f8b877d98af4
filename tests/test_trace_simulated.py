"""Culprits and causes that traces of simulated trainings name: tests/simulation/stragglers.cc plants the troubles."""

from __future__ import annotations

import pytest
from stragglers.simulated import PROGRAM, Simulated, simulated

SEEDS = 2  # from 0 on: each takes the same course in every run, on every machine

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"make test-cpp builds {PROGRAM.name}")


@pytest.fixture(scope="module")
def trainings() -> list[Simulated]:
    return list(simulated(0, SEEDS))


def test_whoever_makes_a_training_slow_is_named_and_for_the_right_cause(trainings: list[Simulated]) -> None:
    counted = [one for one in trainings if one.counts and one.who]
    assert len(counted) > 4 * SEEDS
    assert [one.title for one in counted if not one.right] == []


def test_nobody_is_named_where_nothing_is_planted(trainings: list[Simulated]) -> None:
    assert [one.title for one in trainings if not one.who and one.named] == []
