"""Everything but all_reduce of dense CPU tensors: the results are those of gloo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

kept: dict[str, Any] = {}  # what a rank keeps from one call to the next


def _beside_gloo(rank: int, name: str) -> None:
    results = [_COLLECTIVES[name](rank, dist.get_world_size(), group) for group in (dist.group.WORLD, _gloo())]
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs), f"{name}: {ours} instead of {theirs}"


def _gloo() -> Any:
    if "gloo" not in kept:
        kept["gloo"] = dist.new_group(backend="gloo")
    return kept["gloo"]


Tensors = list[torch.Tensor]


def _broadcast(rank: int, _size: int, group: Any) -> Tensors:
    tensor = torch.full((5,), rank)
    dist.broadcast(tensor, src=1, group=group)
    return [tensor]


def _reduce(rank: int, _size: int, group: Any) -> Tensors:
    tensor = torch.full((5,), float(rank + 1))
    dist.reduce(tensor, dst=1, group=group)
    return [tensor] if rank == 1 else []


def _all_gather(rank: int, size: int, group: Any) -> Tensors:
    outputs = [torch.zeros(3) for _ in range(size)]
    dist.all_gather(outputs, torch.full((3,), float(rank)), group=group)
    return outputs


def _all_gather_into_tensor(rank: int, size: int, group: Any) -> Tensors:
    output = torch.zeros(3 * size)
    dist.all_gather_into_tensor(output, torch.full((3,), float(rank)), group=group)
    return [output]


def _gather(rank: int, size: int, group: Any) -> Tensors:
    outputs = [torch.zeros(3) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.full((3,), float(rank)), outputs, dst=0, group=group)
    return outputs or []


def _scatter(rank: int, size: int, group: Any) -> Tensors:
    output = torch.zeros(3)
    inputs = [torch.full((3,), float(other)) for other in range(size)] if rank == 0 else None
    dist.scatter(output, inputs, src=0, group=group)
    return [output]


def _reduce_scatter(rank: int, size: int, group: Any) -> Tensors:
    output = torch.zeros(3)
    dist.reduce_scatter(output, [torch.full((3,), float(rank + other)) for other in range(size)], group=group)
    return [output]


def _reduce_scatter_tensor(rank: int, size: int, group: Any) -> Tensors:
    output = torch.zeros(3)
    dist.reduce_scatter_tensor(output, torch.arange(3.0 * size) + rank, group=group)
    return [output]


def _all_to_all(rank: int, size: int, group: Any) -> Tensors:
    output = torch.zeros(2 * size)
    dist.all_to_all_single(output, torch.arange(2.0 * size) + 10 * rank, group=group)
    return [output]


def _send_and_receive(rank: int, size: int, group: Any) -> Tensors:
    output = torch.zeros(3)
    operations = [
        dist.P2POp(dist.isend, torch.full((3,), float(rank)), (rank + 1) % size, group),
        dist.P2POp(dist.irecv, output, (rank - 1) % size, group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return [output]


def _receive_from_anyone(rank: int, _size: int, group: Any) -> Tensors:
    output = torch.zeros(3)
    if rank == 0:
        dist.send(torch.ones(3), 1, group=group)
    elif rank == 1:
        output[0] = dist.recv(output, group=group)
    return [output]


def _sparse(rank: int, _size: int, group: Any) -> Tensors:
    tensor = torch.sparse_coo_tensor(torch.tensor([[rank, rank + 1]]), torch.tensor([1.0, 2.0]), (8,))
    dist.all_reduce(tensor, group=group)
    return [tensor.to_dense()]


def _objects(rank: int, size: int, group: Any) -> Tensors:
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank}, group=group)
    shared = [f"from {rank}"]
    dist.broadcast_object_list(shared, src=1, group=group)
    assert shared == ["from 1"]
    return [torch.tensor([entry["rank"] for entry in gathered])]


def _barrier(_rank: int, _size: int, group: Any) -> Tensors:
    dist.barrier(group=group)
    return []


def _coalesced(rank: int, _size: int, group: Any) -> Tensors:
    tensors = [torch.full((elements,), float(rank)) for elements in (0, 1, 1000)]
    with dist.distributed_c10d._coalescing_manager(group):
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    return tensors


_COLLECTIVES: dict[str, Callable[[int, int, Any], Tensors]] = {
    "broadcast": _broadcast,
    "reduce": _reduce,
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "all_to_all_single": _all_to_all,
    "send and receive": _send_and_receive,
    "receive from anyone": _receive_from_anyone,
    "all_reduce of a sparse tensor": _sparse,
    "object collectives": _objects,
    "barrier": _barrier,
    "coalesced all_reduce": _coalesced,
}


@pytest.mark.parametrize("name", _COLLECTIVES)
def test_the_result_is_that_of_gloo(three: Ranks, name: str) -> None:
    three.run(_beside_gloo, name)


def _meet(rank: int) -> list[float]:
    tensor = torch.full((4,), float(rank))
    if rank == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)
    return tensor.tolist()


def test_two_ranks_may_send_before_the_third_makes_any_call() -> None:
    ranks = Ranks(3)
    try:
        ranks.init()
        assert ranks.run(_meet, on=[0, 1]) == [[0.0] * 4] * 2
    finally:
        ranks.kill()
