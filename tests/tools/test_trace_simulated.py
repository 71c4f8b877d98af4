"""Culprits and causes that traces of simulated trainings name: tests/simulation/stragglers.cc plants the troubles."""

from __future__ import annotations

import pytest
from stragglers.simulated import PROGRAM, Simulated, simulated

from fairring.trace.words import explain

SEEDS = 2  # from 0 on: each takes the same course in every run, on every machine

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"make test-cpp builds {PROGRAM.name}")


@pytest.fixture(scope="module")
def trainings() -> list[Simulated]:
    return list(simulated(0, SEEDS))


def test_whoever_makes_a_training_slow_is_named_and_for_the_right_cause(trainings: list[Simulated]) -> None:
    counted = [one for one in trainings if one.counts and one.who]
    assert len(counted) > 4 * SEEDS
    assert [one.title for one in counted if not one.right] == []


def test_nobody_is_named_where_nobody_is_to_blame(trainings: list[Simulated]) -> None:
    assert [one.title for one in trainings if not one.who and one.named] == []


def test_waits_for_small_staging_are_told(trainings: list[Simulated]) -> None:
    told = {one.title: explain(one.ranks) for one in trainings if one.title.endswith(" 1")}
    assert "waited for staging" in told["small staging 1"]
    assert "FAIRRING_TOTAL_MEMORY gives it 2 MiB instead of the default 50" in told["small staging 1"]
    assert [title for title, text in told.items() if "waited for staging" in text] == ["small staging 1"]
