"""Worlds of ranks on this machine (ranks.py) that tests share. Those that one test changes are its own: `strangers`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ranks import Ranks

WORLDS = [1, 2, 3, 4]


@pytest.fixture(scope="module", params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    yield from _started(request.param)


@pytest.fixture(scope="module")
def pair() -> Iterator[Ranks]:
    yield from _started(2)


@pytest.fixture(scope="module")
def three() -> Iterator[Ranks]:
    yield from _started(3)


@pytest.fixture
def strangers() -> Iterator[Ranks]:
    """Two ranks without a group yet, for one test alone."""
    ranks = Ranks(2)
    yield ranks
    ranks.kill()


def _started(size: int) -> Iterator[Ranks]:
    ranks = Ranks(size)
    ranks.init()
    yield ranks
    assert ranks.close() == [0] * size, "ranks that did not destroy their group did not end well"
