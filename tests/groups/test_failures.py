"""Failing well: every rank is told who failed and what to do in the cases of failures/cases.py; nothing is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from failures.cases import CASES
from failures.judge import faults
from failures.play import Case, Play
from failures.stage import Stage
from lab_programs import needs_namespaces

pytestmark = needs_namespaces


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_rank_says_what_happened_and_leaves_nothing(stage: Stage, case: Case) -> None:
    before = stage.traces()
    outcomes = Play(stage, case).run()
    assert not faults(case, outcomes), "\n".join(faults(case, outcomes))
    assert not stage.traces() - before
