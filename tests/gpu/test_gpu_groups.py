"""Groups of some of the ranks, made and split, and threads that call in groups of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gpu_machines import LAYOUTS, carried, machines, start
from ranks import Ranks, on_ranks
from versions import can_split

pytestmark = pytest.mark.gpu

LAYOUT = "2x2"
PARTS = [[0, 1], [2, 3], [0, 2], [3, 1], [0, 1, 2], [1]]
ELEMENTS = 30_000
TURNS = 8


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    ranks = start(LAYOUT, environment={"CUDA_DEVICE_MAX_CONNECTIONS": "32"})
    yield ranks
    assert ranks.close() == [0] * ranks.size


def _begin(group: Any, turn: int) -> tuple[list[Any], list[torch.Tensor], list[torch.Tensor]]:
    """An all-reduce, a reduce-scatter and an all-gather under way; their results, and what these should be."""
    size, place = dist.get_world_size(group), dist.get_rank(group)
    total = torch.full((ELEMENTS,), place + turn + 1.0, device="cuda")
    mine = torch.arange(size, device="cuda").repeat_interleave(ELEMENTS) * 10.0 + place + turn
    part, whole = torch.empty(ELEMENTS, device="cuda"), torch.empty(size * ELEMENTS, device="cuda")
    works = [
        dist.all_reduce(total, group=group, async_op=True),
        dist.reduce_scatter_tensor(part, mine, group=group, async_op=True),
        dist.all_gather_into_tensor(whole, mine[:ELEMENTS].clone(), group=group, async_op=True),
    ]
    ranks = sum(range(size))
    expected = [
        torch.full_like(total, float(ranks + size * (turn + 1))),
        torch.full_like(part, float(size * (10 * place + turn) + ranks)),
        torch.arange(size, device="cuda").repeat_interleave(ELEMENTS).float() + turn,
    ]
    return works, [total, part, whole], expected


def _use(groups: list[Any]) -> None:
    """All groups' calls are under way together."""
    for turn in range(3):
        begun = [_begin(group, turn) for group in groups]
        for works, results, expected in begun:
            for work in works:
                work.wait()
            assert all(map(torch.equal, results, expected))


def _is_on_several_machines(group: Any) -> bool:
    return len({LAYOUTS[LAYOUT][rank] for rank in dist.get_process_group_ranks(group)}) > 1


@pytest.mark.parametrize("how", ["new", pytest.param("split", marks=can_split)])
@on_ranks("four")
def test_groups_of_some_ranks_have_calls_of_their_own(rank: int, how: str) -> None:
    world: Any = dist.group.WORLD
    if how == "split":
        made: list[Any] = [dist.split_group(split_ranks=[part]) for part in PARTS]
    else:
        made = [dist.new_group(part) for part in PARTS]
    mine = [group for group, part in zip(made, PARTS, strict=True) if rank in part]
    _use([world, *mine])
    for group in [world, *mine]:
        assert (carried(group) > 0) == _is_on_several_machines(group), dist.get_process_group_ranks(group)
    for group in mine:
        dist.destroy_process_group(group)
    _use([world])


def _come_from_a_bound_group(rank: int, size: int, port: int) -> None:
    """The groups of HSDP and of pipelines, as a program has them whose default group knows its device."""
    store, device = dist.TCPStore("127.0.0.1", port, is_master=False), torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("fairring", store=store, rank=rank, world_size=size, device_id=device)
    mesh = dist.init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
    made: list[Any] = [mesh["replicate"].get_group(), mesh["shard"].get_group()]
    made += [dist.split_group(split_ranks=[[0, 3], [1, 2]]), dist.new_group([0, 1, 2])]
    mine = [group for group in made if group != dist.GroupMember.NON_GROUP_MEMBER]
    assert len(mine) == 3 + (rank < 3)
    _use(mine)
    for group in mine:
        assert (carried(group) > 0) == _is_on_several_machines(group), dist.get_process_group_ranks(group)
    dist.destroy_process_group()


@can_split
def test_groups_come_from_a_group_that_is_bound_to_a_device() -> None:
    ranks = machines(LAYOUT, environment={"CUDA_DEVICE_MAX_CONNECTIONS": "32"})
    ranks.run(_come_from_a_bound_group, ranks.size, ranks.store.port)
    assert ranks.close() == [0] * ranks.size


def _call_in_turns(group: Any, tensors: list[torch.Tensor], errors: list[BaseException]) -> None:
    """In a stream of the thread's own; takes no memory, for which a device that stands at a gate may be waited for."""
    torch.cuda.set_device(tensors[0].device)
    try:
        with torch.cuda.stream(torch.cuda.Stream()):
            for tensor in tensors:
                work = dist.all_reduce(tensor, group=group, async_op=True)
                work.wait()
                tensor.mul_(2)
            torch.cuda.current_stream().synchronize()
    except BaseException as error:
        errors.append(error)


@pytest.mark.parametrize("of", ["all", "some"])
@on_ranks("four")
def test_threads_call_in_groups_of_their_own(rank: int, of: str) -> None:
    """Each thread's calls have an order, in its group; between the threads there is none, on any rank."""
    groups = [dist.new_group(), dist.new_group()] if of == "all" else [dist.new_group(), dist.new_group([0, 2])]
    mine = [group for group in groups if group != dist.GroupMember.NON_GROUP_MEMBER]
    for group in mine:  # what is made at first use is there
        warm = torch.ones(ELEMENTS, device="cuda")
        dist.all_reduce(warm, group=group)
        warm.mul_(2)
    calls = [[torch.full((ELEMENTS,), float(rank + turn), device="cuda") for turn in range(TURNS)] for _ in mine]
    torch.cuda.synchronize()
    dist.barrier()
    errors: list[BaseException] = []
    order = list(zip(mine, calls, strict=True))[:: 1 if rank % 2 == 0 else -1]
    threads = [threading.Thread(target=_call_in_turns, args=(*each, errors)) for each in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert errors == []
    for group, tensors in zip(mine, calls, strict=True):
        members = dist.get_process_group_ranks(group)
        for turn, tensor in enumerate(tensors):
            assert torch.equal(tensor, torch.full_like(tensor, 2.0 * sum(member + turn for member in members)))
        assert carried(group) > 0
        dist.destroy_process_group(group)
