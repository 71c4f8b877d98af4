"""shrink_group when its own members die, the store's holder among them, do not come, or make calls meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, all_reduce_ones

from fairring import members

c10d: Any = dist.distributed_c10d


def _shrink(rank: int, excluded: list[int], flags: int = 0) -> tuple[int, int, float]:
    dist.shrink_group(excluded, shrink_flags=flags)
    return dist.get_rank(), dist.get_world_size(), all_reduce_ones(rank, 1)


def _expect_error(_rank: int, excluded: list[int], text: str) -> None:
    with pytest.raises(dist.DistBackendError, match=text):
        dist.shrink_group(excluded)


def test_a_second_death_is_an_error_and_the_last_rank_goes_on(trio: Ranks) -> None:
    trio.run(all_reduce_ones, 5)
    for victim in (1, 2):
        trio.kill_one(victim)
    text = r"rank 1 \(.*\) died, or ended, before group .* \(shrunk to 2 ranks\) was connected"
    trio.run(_expect_error, [2], text, on=[0])
    assert trio.run(_shrink, [1, 2], on=[0]) == [(0, 1, 1.0)]


def _shrink_over_a_call(_rank: int) -> tuple[float, members.LastComplete | None]:
    tensor = torch.ones(1)
    under_way: Any = dist.all_reduce(tensor, async_op=True)
    dist.shrink_group([1])
    under_way.wait()
    return tensor.item(), members.last_complete()


def test_calls_under_way_end_well_before_a_shrink_that_does_not_abort_them(trio: Ranks) -> None:
    trio.run(all_reduce_ones, 5)
    shrinking = trio.start(_shrink_over_a_call, on=[0, 2])
    trio.run(all_reduce_ones, 1, on=[1])
    both = members.LastComplete(members.Mark(0, 2), [2, 2])
    assert trio.finish(shrinking) == [(3.0, both)] * 2


def _call_and_shrink(rank: int) -> tuple[int, int, float]:
    under_way = dist.all_reduce(torch.ones(1), async_op=True) if rank == 0 else None
    result = _shrink(rank, [1], c10d.SHRINK_ABORT)
    if under_way is not None:
        with pytest.raises(dist.DistBackendError, match=r"shrank its process group .* with SHRINK_ABORT"):
            under_way.wait()
    return result


def test_calls_under_way_end_with_an_error_where_that_is_asked_for(trio: Ranks) -> None:
    trio.run(all_reduce_ones, 5)
    assert trio.run(_call_and_shrink, on=[0, 2]) == [(0, 2, 2.0), (1, 2, 2.0)]
    assert trio.run(_shrink, [1], on=[0]) == [(0, 1, 1.0)]


HELD: list[dist.TCPStore] = []
SECONDS_WITHOUT_STORE = 3


def _hold_a_store(_rank: int) -> int:
    timeout = timedelta(seconds=SECONDS_WITHOUT_STORE)
    HELD[:] = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timeout)]
    return HELD[0].port


def _init_with_the_store_of_rank_0(rank: int, port: int) -> None:
    timeout = timedelta(seconds=SECONDS_WITHOUT_STORE)
    store = HELD[0] if rank == 0 else dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
    dist.init_process_group("fairring", store=store, rank=rank, world_size=3)
    assert all_reduce_ones(rank, 5) == 15


def _init_as_torchrun_has_it(rank: int, port: int) -> None:
    """The store is the agent's, another process's, and rank 0 is as much its client as the others."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "3"}
    dist.init_process_group("fairring")
    assert all_reduce_ones(rank, 5) == 15


def _shrink_by_members(rank: int, excluded: list[int]) -> tuple[int, int, float]:
    members.shrink_group(excluded, shrink_flags=c10d.SHRINK_ABORT)
    return dist.get_rank(), dist.get_world_size(), all_reduce_ones(rank, 1)


@pytest.fixture
def without_store() -> Iterator[Ranks]:
    """Ranks 1 and 2; rank 0 has died, and the store with it."""
    ranks = Ranks(3)
    (port,) = ranks.run(_hold_a_store, on=[0])
    ranks.run(_init_with_the_store_of_rank_0, port)
    ranks.kill_one(0)
    yield ranks
    ranks.kill()


def test_survivors_of_the_stores_holder_shrink_without_a_store(without_store: Ranks) -> None:
    assert without_store.run(_shrink_by_members, [0], on=[1, 2]) == [(0, 2, 2.0), (1, 2, 2.0)]
    assert without_store.run(_shrink_by_members, [1], on=[1]) == [(0, 1, 1.0)]


def _expect_an_error_of_the_store(_rank: int) -> None:
    with pytest.raises(dist.DistError, match=r"127\.0\.0\.1"):
        dist.shrink_group([0], shrink_flags=c10d.SHRINK_ABORT)
    assert not dist.is_initialized()


def test_torchs_own_shrink_ends_with_the_stores_error_and_without_a_group(without_store: Ranks) -> None:
    without_store.run(_expect_an_error_of_the_store, on=[1, 2])


def test_a_store_of_torchruns_agent_outlives_rank_0() -> None:
    ranks = Ranks(3)
    ranks.run(_init_as_torchrun_has_it, ranks.store.port)
    ranks.kill_one(0)
    assert ranks.run(_shrink, [0], c10d.SHRINK_ABORT, on=[1, 2]) == [(0, 2, 2.0), (1, 2, 2.0)]
    assert ranks.run(_shrink_by_members, [1], on=[1]) == [(0, 1, 1.0)]
    ranks.kill()
