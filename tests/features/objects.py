"""Collectives and messages of Python objects."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from features.rank import Rank


def _object(number: int) -> dict[str, Any]:
    return {"rank": number, "words": ["w" * number] * 3, "nested": {number: (number, None)}}


def all_gather_object(rank: Rank) -> None:
    """all_gather_object, with objects of unequal sizes"""
    objects: list[Any] = [None] * rank.size
    dist.all_gather_object(objects, _object(rank.number))
    assert objects == [_object(number) for number in rank.everyone]


def gather_object(rank: Rank) -> None:
    """gather_object"""
    objects: list[Any] | None = [None] * rank.size if rank.number == 3 else None
    dist.gather_object(_object(rank.number), objects, dst=3)
    if objects is not None:
        assert objects == [_object(number) for number in rank.everyone]


def broadcast_object_list(rank: Rank) -> None:
    """broadcast_object_list"""
    objects: list[Any] = [_object(1), "text", 7] if rank.number == 1 else [None] * 3
    dist.broadcast_object_list(objects, src=1)
    assert objects == [_object(1), "text", 7]


def scatter_object_list(rank: Rank) -> None:
    """scatter_object_list"""
    output: list[Any] = [None]
    dist.scatter_object_list(output, [_object(number) for number in rank.everyone] if rank.number == 0 else None, src=0)
    assert output == [_object(rank.number)]


def send_object_list(rank: Rank) -> None:
    """send_object_list and recv_object_list"""
    if rank.number % 2 == 0:
        dist.send_object_list([_object(rank.number), "text"], dst=rank.next)
    else:
        objects: list[Any] = [None, None]
        assert dist.recv_object_list(objects, src=rank.previous) == rank.previous
        assert objects == [_object(rank.previous), "text"]


def objects_in_a_sub_group(rank: Rank) -> None:
    """Object collectives in a sub-group"""
    group: Any = dist.new_group([1, 3])
    if rank.number in (1, 3):
        objects: list[Any] = [None, None]
        dist.all_gather_object(objects, _object(rank.number), group=group)
        assert objects == [_object(1), _object(3)]
        one: list[Any] = [_object(3)] if rank.number == 3 else [None]
        dist.broadcast_object_list(one, src=3, group=group)
        assert one == [_object(3)]
