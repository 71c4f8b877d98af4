"""Strangers at every port that a rank opens, from before the group is made until it has ended, change nothing.

`python tests/failures/scan.py` sends twenty times as many.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from failures import scan
from failures.stage import Stage
from lab_programs import needs_namespaces

pytestmark = needs_namespaces

MIB = 1 << 20
CONNECTIONS = 1_000
MOST_GROWTH = 32 * MIB
MOST_DESCRIPTORS = 256  # that strangers hold at once


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


def test_strangers_change_nothing_from_before_the_group_until_after_it(stage: Stage) -> None:
    seen = scan.play(stage, CONNECTIONS)
    assert not seen.faults, "\n".join(seen.faults)
    assert seen.connections.total() >= CONNECTIONS
    assert len(seen.connections) == 10, f"of some kind there was none: {seen.connections}"
    for rank in seen.ranks:
        assert len(rank.opened) == 1, f"no listener but Fairring's: {rank.opened}"
        assert rank.opened < {scan.LOW_PORT, scan.HIGH_PORT}
        assert rank.reports == 1, rank.outcome.log
        assert rank.after.memory - rank.before.memory < MOST_GROWTH
        assert rank.peak.memory - rank.before.memory < MOST_GROWTH
        assert rank.peak.descriptors - rank.before.descriptors.total() <= MOST_DESCRIPTORS + 10
        assert rank.after.threads == rank.before.threads
    assert sum(rank.counted for rank in seen.ranks) > CONNECTIONS / 2
