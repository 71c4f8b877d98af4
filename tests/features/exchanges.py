"""Collectives that move tensors, and those that reduce and scatter them."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist

from features.rank import Rank, all_made, close, made, same

_DTYPES = (torch.float32, torch.float64, torch.float16, torch.uint8, torch.int8, torch.int32, torch.int64)
_RARE = (torch.bfloat16, torch.bool, torch.int16, torch.uint16, torch.complex64)


def _broadcasts(rank: Rank, dtype: torch.dtype) -> None:
    for root in rank.everyone:
        tensor = made(rank.number, 5, 3, dtype=dtype)
        dist.broadcast(tensor, src=root)
        same(tensor, made(root, 5, 3, dtype=dtype))


def broadcast(rank: Rank) -> None:
    """broadcast from each rank"""
    for dtype in _DTYPES:
        _broadcasts(rank, dtype)


def broadcast_of_rare_dtypes(rank: Rank) -> None:
    """broadcast of bfloat16, bool, int16, uint16, complex64"""
    for dtype in _RARE:
        _broadcasts(rank, dtype)


def broadcast_of_layouts(rank: Rank) -> None:
    """broadcast of a transposed, an empty and a 0-dim tensor"""
    transposed = made(rank.number, 4, 6).t()
    dist.broadcast(transposed, src=1)
    same(transposed, made(1, 4, 6).t())
    dist.broadcast(torch.empty(0), src=1)
    scalar = torch.tensor(float(rank.number))
    dist.broadcast(scalar, src=2)
    assert scalar.item() == 2


def _all_gathers(rank: Rank, dtype: torch.dtype) -> None:
    outputs = [torch.empty(5, 3, dtype=dtype) for _ in rank.everyone]
    dist.all_gather(outputs, made(rank.number, 5, 3, dtype=dtype))
    same(outputs, all_made(rank.size, 5, 3, dtype=dtype))


def all_gather(rank: Rank) -> None:
    """all_gather into a list"""
    for dtype in _DTYPES:
        _all_gathers(rank, dtype)


def all_gather_of_rare_dtypes(rank: Rank) -> None:
    """all_gather of bfloat16, bool, int16, uint16, complex64"""
    for dtype in _RARE:
        _all_gathers(rank, dtype)


def all_gather_of_views(rank: Rank) -> None:
    """all_gather of transposed tensors, into views"""
    outputs = list(torch.empty(rank.size, 4, 6).unbind())
    dist.all_gather(outputs, made(rank.number, 6, 4).t())
    same(outputs, [part.t().contiguous() for part in all_made(rank.size, 6, 4)])


def all_gather_of_unequal_tensors(rank: Rank) -> None:
    """all_gather of tensors of unequal sizes"""
    outputs = [torch.empty(2 + number) for number in rank.everyone]
    dist.all_gather(outputs, made(rank.number, 2 + rank.number))
    same(outputs, [made(number, 2 + number) for number in rank.everyone])


def all_gather_concatenated(rank: Rank) -> None:
    """all_gather_into_tensor, concatenated"""
    output = torch.empty(rank.size * 5, 3)
    dist.all_gather_into_tensor(output, made(rank.number, 5, 3))
    same(output, torch.cat(all_made(rank.size, 5, 3)))


def all_gather_stacked(rank: Rank) -> None:
    """all_gather_into_tensor, stacked; the same by its new name all_gather_single"""
    for gather in (dist.all_gather_into_tensor, dist.all_gather_single):
        output = torch.empty(rank.size, 5, 3)
        gather(output, made(rank.number, 5, 3))
        same(output, torch.stack(all_made(rank.size, 5, 3)))


def all_gather_of_several(rank: Rank) -> None:
    """all_gather_coalesced"""
    outputs = [[torch.empty(count) for count in (3, 7)] for _ in rank.everyone]
    dist.all_gather_coalesced(outputs, [made(rank.number, count) for count in (3, 7)])
    for number, tensors in enumerate(outputs):
        same(tensors, [made(number, 3), made(number, 7)])


def gather(rank: Rank) -> None:
    """gather to each rank"""
    for root in rank.everyone:
        outputs = [torch.empty(5) for _ in rank.everyone] if rank.number == root else None
        dist.gather(made(rank.number, 5), outputs, dst=root)
        if outputs is not None:
            same(outputs, all_made(rank.size, 5))


def gather_into_one_tensor(rank: Rank) -> None:
    """gather_into_tensor"""
    output = torch.empty(rank.size * 5) if rank.number == 2 else None
    dist.gather_into_tensor(made(rank.number, 5), output, dst=2)
    if output is not None:
        same(output, torch.cat(all_made(rank.size, 5)))


def scatter(rank: Rank) -> None:
    """scatter from each rank"""
    for root in rank.everyone:
        output = torch.empty(5)
        dist.scatter(output, all_made(rank.size, 5) if rank.number == root else None, src=root)
        same(output, made(rank.number, 5))


def _parts(number: int, size: int) -> list[torch.Tensor]:
    """A rank's contributions to each rank's result."""
    return [made(number * size + to, 6) for to in range(size)]


def _sum_for(rank: Rank) -> torch.Tensor:
    return torch.stack([_parts(number, rank.size)[rank.number] for number in rank.everyone]).sum(0)


def reduce_scatter(rank: Rank) -> None:
    """reduce_scatter of a list"""
    output = torch.empty(6)
    dist.reduce_scatter(output, _parts(rank.number, rank.size))
    same(output, _sum_for(rank))


def reduce_scatter_of_unequal_tensors(rank: Rank) -> None:
    """reduce_scatter of a list of unequal sizes"""
    output = torch.empty(2 + rank.number)
    dist.reduce_scatter(output, [made(rank.number, 2 + to) for to in rank.everyone])
    same(output, torch.stack(all_made(rank.size, 2 + rank.number)).sum(0))


def reduce_scatter_concatenated(rank: Rank) -> None:
    """reduce_scatter_tensor, concatenated"""
    output = torch.empty(6)
    dist.reduce_scatter_tensor(output, torch.cat(_parts(rank.number, rank.size)))
    same(output, _sum_for(rank))


def reduce_scatter_stacked(rank: Rank) -> None:
    """reduce_scatter_tensor, stacked; the same by its new name reduce_scatter_single"""
    for scatter_sum in (dist.reduce_scatter_tensor, dist.reduce_scatter_single):
        output = torch.empty(6)
        scatter_sum(output, torch.stack(_parts(rank.number, rank.size)))
        same(output, _sum_for(rank))


def reduce_scatter_with_operations(rank: Rank) -> None:
    """reduce_scatter_tensor: MAX, MIN, PRODUCT"""
    parts = torch.stack([_parts(number, rank.size)[rank.number] for number in rank.everyone])
    for op, expected in {"MAX": parts.amax(0), "MIN": parts.amin(0), "PRODUCT": parts.prod(0)}.items():
        output = torch.empty(6)
        dist.reduce_scatter_tensor(output, torch.cat(_parts(rank.number, rank.size)), op=getattr(dist.ReduceOp, op))
        same(output, expected)


def reduce_scatter_average(rank: Rank) -> None:
    """reduce_scatter_tensor: AVG of floats"""
    output = torch.empty(6)
    dist.reduce_scatter_tensor(output, torch.cat(_parts(rank.number, rank.size)), op=dist.ReduceOp.AVG)
    close(output, _sum_for(rank) / rank.size)


def reduce_scatter_average_of_integers(rank: Rank) -> None:
    """reduce_scatter_tensor: AVG of int64"""
    output = torch.empty(6, dtype=torch.int64)
    dist.reduce_scatter_tensor(output, torch.cat(_parts(rank.number, rank.size)).long(), op=dist.ReduceOp.AVG)
    same(output, torch.div(_sum_for(rank).long(), rank.size, rounding_mode="trunc"))


def reduce_scatter_of_bfloat16(rank: Rank) -> None:
    """reduce_scatter_tensor of bfloat16"""
    output = torch.empty(6, dtype=torch.bfloat16)
    dist.reduce_scatter_tensor(output, torch.cat(_parts(rank.number, rank.size)).bfloat16())
    same(output, _sum_for(rank).bfloat16())


def all_to_all(rank: Rank) -> None:
    """all_to_all with lists"""
    outputs = [torch.empty(6) for _ in rank.everyone]
    dist.all_to_all(outputs, _parts(rank.number, rank.size))
    same(outputs, [_parts(number, rank.size)[rank.number] for number in rank.everyone])


def all_to_all_of_unequal_tensors(rank: Rank) -> None:
    """all_to_all with lists of unequal sizes, some of them empty"""
    outputs = [torch.empty(number * rank.number) for number in rank.everyone]
    dist.all_to_all(outputs, [made(rank.number, rank.number * to) for to in rank.everyone])
    same(outputs, [made(number, number * rank.number) for number in rank.everyone])


def all_to_all_single(rank: Rank) -> None:
    """all_to_all_single with equal parts"""
    for dtype in (torch.float32, torch.int64, torch.uint8):
        output = torch.empty(rank.size * 6, dtype=dtype)
        dist.all_to_all_single(output, torch.cat(_parts(rank.number, rank.size)).to(dtype))
        same(output, torch.cat([_parts(number, rank.size)[rank.number] for number in rank.everyone]).to(dtype))


def all_to_all_single_of_unequal_parts(rank: Rank) -> None:
    """all_to_all_single with unequal parts"""
    sent = [rank.number + to for to in rank.everyone]
    received = [number + rank.number for number in rank.everyone]
    rows = [made(rank.number, count, 2) for count in sent]
    output = torch.empty(sum(received), 2)
    dist.all_to_all_single(output, torch.cat(rows), received, sent)
    same(output, torch.cat([made(number, number + rank.number, 2) for number in rank.everyone]))


def all_to_all_single_of_rare_dtypes(rank: Rank) -> None:
    """all_to_all_single of complex64, bfloat16, bool"""
    for dtype in (torch.complex64, torch.bfloat16, torch.bool):
        output = torch.empty(rank.size * 3, dtype=dtype)
        dist.all_to_all_single(output, made(rank.number, rank.size * 3, dtype=dtype))
        parts = [made(number, rank.size * 3, dtype=dtype).chunk(rank.size)[rank.number] for number in rank.everyone]
        same(output, torch.cat(parts))


def barrier(rank: Rank) -> None:
    """barrier holds all until the last has come, also asynchronous"""
    store = rank.store("barrier")
    for round_ in range(5):
        store.add(f"come{round_}", 1)
        if round_ % 2:
            dist.barrier(async_op=True).wait()
        else:
            dist.barrier()
        assert store.add(f"come{round_}", 0) == rank.size


def monitored_barrier(rank: Rank) -> None:
    """monitored_barrier"""
    store = rank.store("monitored_barrier")
    store.add("come", 1)
    dist.monitored_barrier(timeout=timedelta(seconds=10), wait_all_ranks=True)
    if rank.number == 0:
        assert store.add("come", 0) == rank.size
