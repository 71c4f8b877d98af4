"""Groups that come from other groups: split, made by only some ranks, of a mesh, on several backends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, backend_of, on_ranks
from versions import can_split

CPU = torch.device("cpu")

kept: dict[str, Any] = {}  # what a rank keeps from one call to the next


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    ranks = Ranks(4)
    ranks.init()
    yield ranks
    assert ranks.close() == [0] * 4


def _use(group: Any) -> list[int]:
    """Every kind of call on the group; the global ranks that took part, as an all-gather has them."""
    size, place = dist.get_world_size(group), dist.get_rank(group)
    total = torch.tensor([place + 1.0])
    dist.all_reduce(total, group=group)
    assert total.item() == sum(range(1, size + 1))
    parts = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(parts, torch.tensor([dist.get_rank()]), group=group)
    part = torch.empty(1)
    dist.reduce_scatter_tensor(part, torch.arange(float(size)), group=group)
    assert part.item() == size * place
    if size > 1:
        received = torch.empty(1)
        exchange = [
            dist.P2POp(dist.isend, torch.tensor([float(place)]), group=group, group_peer=(place + 1) % size),
            dist.P2POp(dist.irecv, received, group=group, group_peer=(place - 1) % size),
        ]
        for work in dist.batch_isend_irecv(exchange):
            work.wait()
        assert received.item() == (place - 1) % size
    dist.barrier(group=group)
    return [int(each.item()) for each in parts]


def _split(rank: int) -> list[int]:
    pairs: Any = dist.split_group(split_ranks=[[0, 1], [3, 2]], timeout=timedelta(seconds=77), group_desc="pairs")
    backend = backend_of(pairs)
    assert backend.name() == "fairring"
    assert backend.options._timeout == timedelta(seconds=77)
    assert backend.options.group_name == pairs.group_name
    assert backend.options.global_ranks_in_group == ([0, 1] if rank < 2 else [3, 2])
    assert pairs.group_desc == "pairs"
    members = _use(pairs)
    single: Any = dist.split_group(parent_pg=pairs, split_ranks=[[1]])
    assert (single == dist.GroupMember.NON_GROUP_MEMBER) == (dist.get_rank(pairs) == 0)
    if dist.get_rank(pairs) == 1:
        assert _use(single) == [rank]
        dist.destroy_process_group(single)
    dist.destroy_process_group(pairs)
    assert _use(dist.group.WORLD) == [0, 1, 2, 3]  # the parent lives on
    return members


def test_a_split_group_is_a_group_of_its_own(four: Ranks) -> None:
    assert four.run(_split) == [[0, 1], [0, 1], [3, 2], [3, 2]]


@on_ranks("four")
def test_equal_splits_are_different_groups(rank: int) -> None:
    groups = [dist.split_group(split_ranks=[[0, 2], [1, 3]]) for _ in range(2)]
    for group in reversed(groups):
        assert _use(group) == ([0, 2] if rank % 2 == 0 else [1, 3])
    some: Any = dist.split_group(split_ranks=[[1, 2]])
    if rank in (1, 2):
        assert _use(some) == [1, 2]
        groups.append(some)
    for group in groups:
        dist.destroy_process_group(group)


@on_ranks("four")
def test_a_backend_can_be_split(rank: int) -> None:
    """Backend.split itself, past torch's split_group."""
    backend = backend_of()
    assert backend.supports_splitting
    options = backend.options
    options.group_name = "halves"
    options._timeout = timedelta(seconds=55)
    ranks = [0, 1] if rank < 2 else [2, 3]
    store = dist.PrefixStore(f"halves{ranks[0]}", dist.distributed_c10d._get_default_group().get_group_store())
    half = backend.split(store, ranks, options)
    assert half.size() == 2
    assert half.rank() == rank % 2
    assert half.options._timeout == timedelta(seconds=55)
    assert backend.options._timeout == timedelta(seconds=60)
    tensor = torch.tensor([rank])
    half.allreduce([tensor], dist.AllreduceOptions()).wait()
    assert tensor.item() == sum(ranks)
    half.shutdown()


def _split_in_halves(_rank: int) -> None:
    kept["half"] = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    _use(kept["half"])


def _abort_half(rank: int) -> str:
    if rank % 2 == 1:
        backend_of(kept["half"]).abort()
    with pytest.raises(dist.DistBackendError) as caught:
        dist.all_reduce(torch.ones(1), group=kept["half"])
    return str(caught.value)


def test_a_split_group_fails_by_itself() -> None:
    with Ranks(4) as ranks:
        ranks.init()
        ranks.run(_split_in_halves)
        texts = ranks.run(_abort_half)
        assert all("aborted" in text for text in texts), texts
        ranks.run(_use_world)


def _use_world(_rank: int) -> None:
    assert _use(dist.group.WORLD) == [0, 1, 2, 3]


def _members(group: Any) -> list[int]:
    """Not by _use, whose barrier torch would make on the device."""
    parts = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, torch.tensor([dist.get_rank()]), group=group)
    return [int(each.item()) for each in parts]


def _bound(rank: int) -> None:
    """As init_process_group(device_id=...) leaves the default group, which torch refuses where there is no device."""
    world: Any = dist.group.WORLD
    world.bound_device_id = torch.device("cuda", 0)
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    grid = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    assert _members(grid["inner"].get_group()) == pair
    assert _members(grid["outer"].get_group()) == [rank % 2, rank % 2 + 2]
    assert _members(dist.split_group(split_ranks=[[0, 1], [2, 3]])) == pair
    for members in ([0, 2], [1, 2, 3]):
        group: Any = dist.new_group(members)
        assert rank not in members or _members(group) == members


@can_split
def test_groups_come_from_a_group_that_is_bound_to_a_device() -> None:
    with Ranks(4) as ranks:
        ranks.init()
        ranks.run(_bound)
        assert ranks.close() == [0] * 4
