"""A group whose members have changed is like any other: the bits of a fresh group, and mismatches that are named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from crews import Crew
from ranks import Ranks, all_reduce_ones
from versions import needs_reconfigure

c10d: Any = dist.distributed_c10d
MACHINES = ["a", "a", "b", "b"]
VICTIM = 1
SURVIVORS = [0, 2, 3]
ELEMENTS = 100_003
HOW = ["shrunk", pytest.param("reconfigured", marks=needs_reconfigure)]


def _ranks(machines: list[str]) -> Ranks:
    return Ranks(len(machines), of_rank=[{"FAIRRING_MACHINE": name} for name in machines])


def _shrink(_rank: int) -> None:
    dist.shrink_group([VICTIM], shrink_flags=c10d.SHRINK_ABORT)


@pytest.fixture(params=HOW)
def changed(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    """The survivors of a group of two machines of two, one rank of which has died."""
    ranks = _ranks(MACHINES)
    if request.param == "shrunk":
        ranks.init()
        ranks.run(_sums, [0] * ranks.size)
        ranks.kill_one(VICTIM)
        ranks.run(_shrink, on=SURVIVORS)
    else:
        crew = Crew(ranks, all_reduce_ones, 1)
        crew.join([0, 1, 2, 3])
        ranks.kill_one(VICTIM)
        crew.join(SURVIVORS)
    yield ranks
    ranks.kill()


def _noise(seed: int) -> torch.Tensor:
    return torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(seed)) * 1000


def _sums(_rank: int, seeds: list[int]) -> list[torch.Tensor]:
    """Of each dtype and operation, of numbers that depend on the seed of this rank of the group."""
    sums = []
    for dtype in (torch.float32, torch.bfloat16):
        for operation in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            tensor = _noise(seeds[dist.get_rank()]).to(dtype)
            dist.all_reduce(tensor, op=operation)
            sums.append(tensor)
    return sums


def test_its_sums_have_the_bits_of_a_fresh_group_of_the_same_ranks(changed: Ranks) -> None:
    fresh = _ranks([MACHINES[rank] for rank in SURVIVORS])
    fresh.init()
    expected = fresh.run(_sums, SURVIVORS)
    found = changed.run(_sums, SURVIVORS, on=SURVIVORS)
    assert fresh.close() == [0] * 3
    for one, other in zip(found, expected, strict=True):
        assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))
    first, second, third = (_noise(seed) for seed in SURVIVORS)
    assert torch.equal(found[0][0], first + (second + third))  # machine a, then machine b
    assert not torch.equal(found[0][0], (first + second) + third)


def _sum_twice(elements: int) -> None:
    dist.all_reduce(torch.ones(elements))
    dist.all_reduce(torch.ones(1))  # a rank whose own call needs nothing of the last one learns it here


def _mismatch(_rank: int) -> str:
    """The last rank of the group makes another call than the others."""
    elements = 77 if dist.get_rank() == dist.get_world_size() - 1 else 100
    with pytest.raises(dist.DistBackendError) as raised:
        _sum_twice(elements)
    return str(raised.value)


def test_calls_that_differ_are_named_as_in_any_group(changed: Ranks) -> None:
    named = (
        r"rank [01] \(.*\) and rank 2 \(.*\) made different calls in group .*: "
        r"call \d+ was all_reduce SUM of 100 Float32 on rank [01], but all_reduce SUM of 77 Float32 on rank 2; "
        "all ranks must make the same calls with the same ops, sizes and types in the same order"
    )
    for text in changed.run(_mismatch, on=SURVIVORS):
        assert re.search(named, text), text
