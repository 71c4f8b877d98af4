"""Ranks that share their cores: OpenMP's threads must not spin, which a further team of threads brings about.

Threads of such a team have the name of the thread that made it: a loop's, of which a process has two.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

TEAM = max(2, len(os.sched_getaffinity(0)))


@pytest.fixture
def pair() -> Iterator[Ranks]:
    ranks = Ranks(2)
    yield ranks
    ranks.kill()


def _loops() -> int:
    return sum(task.joinpath("comm").read_text() == "fairring loop\n" for task in Path("/proc/self/task").iterdir())


def _threads_of(_rank: int, threads: int) -> None:
    torch.set_num_threads(threads)


def _loops_at_last(_rank: int, expected: int) -> int:
    """The test's patience ends a rank that never has so many."""
    dist.barrier()
    while _loops() < expected:
        dist.barrier()
    return _loops()


def test_ranks_with_a_thread_for_each_core_get_one_more_team(pair: Ranks) -> None:
    pair.run(_threads_of, TEAM)
    pair.init()
    assert pair.run(_loops_at_last, 2 + TEAM - 1) == [2 + TEAM - 1] * 2


def test_ranks_of_one_thread_get_none(pair: Ranks) -> None:
    pair.run(_threads_of, 1)
    pair.init()
    assert pair.run(_loops_at_last, 2) == [2, 2]
