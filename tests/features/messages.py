"""Messages between two ranks."""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.distributed as dist

from features.rank import GROUP_TIMEOUT, Rank, made, same


def send_and_receive(rank: Rank) -> None:
    """send and recv of all dtypes"""
    for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.complex64, torch.int16):
        if rank.number % 2 == 0:
            dist.send(made(rank.number, 5, 3, dtype=dtype), rank.next)
        else:
            tensor = torch.empty(5, 3, dtype=dtype)
            assert dist.recv(tensor, rank.previous) == rank.previous
            same(tensor, made(rank.previous, 5, 3, dtype=dtype))


def tags(rank: Rank) -> None:
    """Tags: messages that are received in another order than they were sent"""
    if rank.number % 2 == 0:
        works: list[Any] = [dist.isend(made(tag, 9), rank.next, tag=tag) for tag in range(5)]
        for work in works:
            work.wait()
    else:
        for tag in reversed(range(5)):
            tensor = torch.empty(9)
            dist.recv(tensor, rank.previous, tag=tag)
            same(tensor, made(tag, 9))


def any_source(rank: Rank) -> None:
    """recv from any rank, which says from whom"""
    if rank.number:
        dist.send(made(rank.number, 4), 0, tag=3)
    else:
        heard = set()
        for _ in range(rank.size - 1):
            tensor = torch.empty(4)
            sender = dist.recv(tensor, tag=3)
            same(tensor, made(sender, 4))
            heard.add(sender)
        assert heard == {1, 2, 3}
    dist.barrier()


def any_source_without_waiting(rank: Rank) -> None:
    """irecv from any rank, and its source_rank"""
    if rank.number == 1:
        dist.send(made(1, 4), 0, tag=4)
    elif rank.number == 0:
        tensor = torch.empty(4)
        work: Any = dist.irecv(tensor, tag=4)
        work.wait()
        assert work._source_rank() == 1
        same(tensor, made(1, 4))


def around_the_ring(rank: Rank) -> None:
    """isend and irecv around the ring"""
    received = torch.empty(1000)
    works: list[Any] = [dist.irecv(received, rank.previous), dist.isend(made(rank.number, 1000), rank.next)]
    for work in works:
        work.wait()
    same(received, made(rank.previous, 1000))


def batch(rank: Rank) -> None:
    """batch_isend_irecv with every other rank"""
    others = [number for number in rank.everyone if number != rank.number]
    received = {other: torch.empty(50) for other in others}
    operations = [dist.P2POp(dist.isend, made(rank.number * 10 + other, 50), other) for other in others]
    operations += [dist.P2POp(dist.irecv, received[other], other) for other in others]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for other in others:
        same(received[other], made(other * 10 + rank.number, 50))


def large_message(rank: Rank) -> None:
    """send of 16 MiB"""
    if rank.number == 0:
        dist.send(made(0, 4 << 20), 3)
    elif rank.number == 3:
        tensor = torch.empty(4 << 20)
        dist.recv(tensor, 0)
        same(tensor, made(0, 4 << 20))


def empty_message(rank: Rank) -> None:
    """send of an empty tensor"""
    if rank.number == 0:
        dist.send(torch.empty(0), 1)
    elif rank.number == 1:
        assert dist.recv(torch.empty(0), 0) == 0


def by_ranks_of_the_group(rank: Rank) -> None:
    """group_dst and group_src in a sub-group"""
    group: Any = dist.new_group([3, 1])
    if rank.number == 3:
        dist.send(made(3, 4), group=group, group_dst=dist.get_group_rank(group, 1))
    elif rank.number == 1:
        tensor = torch.empty(4)
        dist.recv(tensor, group=group, group_src=dist.get_group_rank(group, 3))
        same(tensor, made(3, 4))


def first_call_of_two_ranks(rank: Rank) -> None:
    """A new group's first call is a message; the other ranks make none"""
    group: Any = dist.new_group()
    if rank.number == 1:
        dist.send(made(1, 4), 2, group=group)
    elif rank.number == 2:
        tensor = torch.empty(4)
        dist.recv(tensor, 1, group=group)
        same(tensor, made(1, 4))


def groups_in_opposite_order(rank: Rank) -> None:
    """Two new groups whose first messages begin in opposite order on two ranks"""
    groups: list[Any] = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    if rank.number > 1:
        return
    received = [torch.empty(4), torch.empty(4)]

    def exchange() -> None:
        works: list[Any] = []
        for index in (0, 1) if rank.number == 0 else (1, 0):
            if rank.number == 0:
                works.append(dist.isend(made(index, 4), 1, group=groups[index]))
            else:
                works.append(dist.irecv(received[index], 0, group=groups[index]))
        for work in works:
            work.wait()

    exchanging = threading.Thread(target=exchange, daemon=True)
    exchanging.start()
    exchanging.join(GROUP_TIMEOUT.total_seconds())
    assert not exchanging.is_alive(), "both wait for ever"
    if rank.number == 1:
        same(received, [made(0, 4), made(1, 4)])


def from_two_threads(rank: Rank) -> None:
    """send and recv at once from two threads"""
    received = torch.empty(1000)
    sender = threading.Thread(target=dist.send, args=(made(rank.number, 1000), rank.next))
    sender.start()
    dist.recv(received, rank.previous)
    sender.join()
    same(received, made(rank.previous, 1000))
