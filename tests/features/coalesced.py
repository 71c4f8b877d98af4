"""Calls that are gathered and started together."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from features.rank import Rank, all_made, made, same


def coalesced_all_reduces(rank: Rank) -> None:
    """coalescing manager: all_reduces"""
    tensors = [made(rank.number, count) for count in (3, 50)]
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    same(tensors, [torch.stack(all_made(rank.size, count)).sum(0) for count in (3, 50)])


def coalesced_all_gathers(rank: Rank) -> None:
    """coalescing manager: all_gather_into_tensor"""
    outputs = [torch.empty(rank.size * count) for count in (3, 50)]
    with _coalescing_manager(device=torch.device("cpu")):
        for output, count in zip(outputs, (3, 50), strict=True):
            dist.all_gather_into_tensor(output, made(rank.number, count))
    same(outputs, [torch.cat(all_made(rank.size, count)) for count in (3, 50)])


def coalesced_reduce_scatters(rank: Rank) -> None:
    """coalescing manager: reduce_scatter_tensor"""
    outputs = [torch.empty(count) for count in (3, 50)]
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for output in outputs:
            dist.reduce_scatter_tensor(output, made(rank.number, rank.size * output.numel()))
    manager.wait()
    for output in outputs:
        whole = torch.stack(all_made(rank.size, rank.size * output.numel())).sum(0)
        same(output, rank.part(whole))


def coalesced_messages(rank: Rank) -> None:
    """coalescing manager: isend and irecv"""
    received = torch.empty(9)
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        manager.append(dist.isend(made(rank.number, 9), rank.next))
        manager.append(dist.irecv(received, rank.previous))
    manager.wait()
    same(received, made(rank.previous, 9))


def coalesced_by_group_methods(rank: Rank) -> None:
    """ProcessGroup's own coalesced all-gathers and reduce-scatters"""
    group: Any = dist.group.WORLD
    gathered = [torch.empty(rank.size * count) for count in (3, 50)]
    group.allgather_into_tensor_coalesced(gathered, [made(rank.number, count) for count in (3, 50)]).wait()
    same(gathered, [torch.cat(all_made(rank.size, count)) for count in (3, 50)])
    scattered = [torch.empty(count) for count in (3, 50)]
    inputs = [made(rank.number, rank.size * count) for count in (3, 50)]
    group.reduce_scatter_tensor_coalesced(scattered, inputs).wait()
    for output in scattered:
        same(output, rank.part(torch.stack(all_made(rank.size, rank.size * output.numel())).sum(0)))


def broadcast_of_buckets(rank: Rank) -> None:
    """_broadcast_coalesced, which DDP's start uses"""
    tensors = [made(rank.number, count) for count in (3, 50, 700)]
    group: Any = dist.group.WORLD
    dist._broadcast_coalesced(group, tensors, 1024, 1)
    same(tensors, [made(1, count) for count in (3, 50, 700)])
