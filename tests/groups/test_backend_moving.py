"""Calls that move tensors: what their futures hold, and what is refused.

random_programs plays every form with every dtype, and shapes and layouts of all kinds.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, backend_of, on_ranks


def _group() -> Any:
    return dist.group.WORLD


def _start(name: str, rank: int, size: int, value: float) -> tuple[Any, list[Any]]:
    """The Work of a call, and the outputs as its future has them."""
    tensor, parts = torch.full((2, 2), value).t(), [torch.zeros(2, 2).t() for _ in range(size)]
    if name == "broadcast":
        return dist.broadcast(tensor, src=0, async_op=True), [tensor]
    if name == "all_gather":
        return dist.all_gather(parts, tensor, async_op=True), parts
    if name == "all_gather_into_tensor":
        output = torch.empty(size, 2, 2)
        return dist.all_gather_into_tensor(output, tensor, async_op=True), [output]
    if name == "allgather_coalesced":
        return _group().allgather_coalesced([parts, parts, parts], [tensor] * 3), [parts, parts, parts]
    if name == "gather":
        return dist.gather(tensor, parts if rank == 0 else None, dst=0, async_op=True), parts if rank == 0 else []
    if name == "scatter":
        return dist.scatter(tensor, parts if rank == 0 else None, src=0, async_op=True), [tensor]
    if name == "reduce":
        return dist.reduce(tensor, dst=0, async_op=True), [tensor]
    if name == "reduce_scatter_tensor":
        output = torch.empty(2, 2)
        return dist.reduce_scatter_tensor(output, torch.full((size, 2, 2), value), async_op=True), [output]
    assert name == "all_to_all"
    return dist.all_to_all(parts, [tensor] * size, async_op=True), parts


def _addresses(value: Any) -> Any:
    return [_addresses(each) for each in value] if isinstance(value, list) else value.data_ptr()


FUTURES = ("broadcast", "all_gather", "all_gather_into_tensor", "allgather_coalesced", "gather", "scatter")


@pytest.mark.parametrize("name", [*FUTURES, "all_to_all", "reduce", "reduce_scatter_tensor"])
@on_ranks("three")
def test_futures_hold_the_outputs(rank: int, name: str) -> None:
    work, outputs = _start(name, rank, dist.get_world_size(), float(rank))
    future = work.get_future()
    addresses = future.then(lambda done: _addresses(done.value()))
    assert work.wait()
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert addresses.wait() == _addresses(outputs)
    assert _addresses(future.value()) == _addresses(outputs)
    assert work.get_future_result().wait() == 0
    if name != "allgather_coalesced":
        assert _addresses(work.result()) == _addresses(outputs)


@on_ranks("three")
def test_a_wrong_call_is_an_error_that_leaves_the_group_alone() -> None:
    with pytest.raises(ValueError, match="all_gather: an output of Int for an input of Float"):
        dist.distributed_c10d._get_default_group().allgather([[torch.ones(3, dtype=torch.int32)] * 3], [torch.ones(3)])
    with pytest.raises(ValueError, match="all_gather_into_tensor: the output has room for 8 elements of 9"):
        dist.all_gather_into_tensor(torch.ones(8), torch.ones(3))
    with pytest.raises(ValueError, match="all_to_all: expected are 3 outputs, given are 2"):
        dist.all_to_all([torch.ones(3)] * 2, [torch.ones(3)] * 3)
    with pytest.raises(ValueError, match=r"broadcast: expected are dense tensors of .*; one is Sparse"):
        backend_of().broadcast([torch.eye(3).to_sparse()])
    with pytest.raises(RuntimeError, match="Split sizes"):
        dist.all_to_all_single(torch.ones(3), torch.ones(3), [1, 1, 1], [1, 1, 2])
    with pytest.raises(RuntimeError, match="single memory location"):
        dist.all_gather([torch.ones(1).expand(3) for _ in range(3)], torch.ones(3))
    dist.barrier()  # nothing was sent: the group goes on


def _sizes_that_do_not_fit(rank: int) -> str:
    arriving = [1, 3, 1] if rank == 0 else [1, 1, 1]
    with pytest.raises(dist.DistBackendError) as caught:
        dist.all_to_all_single(torch.empty(sum(arriving)), torch.ones(3), arriving, [1, 1, 1])
    dist.barrier()
    return str(caught.value)


def test_sizes_that_do_not_fit_are_an_error_on_every_rank_and_the_group_goes_on(three: Ranks) -> None:
    texts = three.run(_sizes_that_do_not_fit)
    assert "rank 1 has 4 B for rank 0, which has room for 12 B from it" in texts[0]
    assert all("rank 0 refused its part of all_to_all_single" in text for text in texts[1:])


def _refuses_a_broadcast(rank: int) -> float:
    shared = torch.zeros(1).expand(4) if rank == 1 else torch.full((4,), float(rank))
    if rank == 1:
        with pytest.raises(dist.DistBackendError, match="rank 1 refused tensor 0 of 1 in broadcast"):
            dist.broadcast(shared, 2)
    else:
        dist.broadcast(shared, 2)
    dist.barrier()
    return shared.sum().item()


def test_who_cannot_take_a_broadcast_keeps_it_from_nobody_else(three: Ranks) -> None:
    assert three.run(_refuses_a_broadcast) == [8.0, 0.0, 8.0]


def _refuses_what_it_has_freed(rank: int) -> list[float]:
    mine = torch.full((4,), float(rank))
    if rank == 1:
        mine.untyped_storage().resize_(0)
    everybodys = [torch.empty(4) for _ in range(3)]
    with pytest.raises(dist.DistBackendError, match="rank 1 refused"):
        dist.all_gather(everybodys, mine)
    with pytest.raises(dist.DistBackendError, match="rank 1 refused"):
        dist.all_reduce(mine)
    dist.barrier()
    spaced = torch.full((4, 2), -1.0)[:, 0]
    everybodys = [spaced, torch.zeros(1).expand(4), torch.empty(4)]
    if rank == 1:
        with pytest.raises(dist.DistBackendError, match="rank 1 refused tensor 0 of 1 in all_gather"):
            dist.all_gather(everybodys, torch.full((4,), 1.0))
    else:
        with pytest.raises(dist.DistBackendError, match="rank 1 refused its part"):
            dist.all_gather([spaced, torch.empty(4), torch.empty(4)], torch.full((4,), 1.0))
    dist.barrier()
    return spaced.tolist() if rank == 1 else []


def test_freed_memory_is_refused_and_a_refused_call_leaves_its_outputs_alone(three: Ranks) -> None:
    assert three.run(_refuses_what_it_has_freed)[1] == [-1.0] * 4
