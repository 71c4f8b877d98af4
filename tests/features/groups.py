"""Sub-groups and meshes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from features.rank import Rank, made, same


def _sums(rank: Rank, group: Any, members: list[int]) -> None:
    """An all_reduce and an all_gather."""
    tensor = made(rank.number, 50)
    dist.all_reduce(tensor, group=group)
    same(tensor, torch.stack([made(member, 50) for member in members]).sum(0))
    outputs = [torch.empty(3) for _ in members]
    dist.all_gather(outputs, made(rank.number, 3), group=group)
    same(outputs, [made(member, 3) for member in members])


def new_group(rank: Rank) -> None:
    """new_group of every pair and triple of ranks"""
    for members in ([0, 1], [0, 2], [1, 3], [2, 3], [0, 1, 2], [1, 2, 3]):
        group: Any = dist.new_group(members)
        if rank.number in members:
            _sums(rank, group, members)
        else:
            assert group == dist.GroupMember.NON_GROUP_MEMBER


def new_group_of_one(rank: Rank) -> None:
    """new_group of a single rank"""
    groups = [dist.new_group([number]) for number in rank.everyone]
    _sums(rank, groups[rank.number], [rank.number])


def fifty_groups(rank: Rank) -> None:
    """50 groups at once, used in turns, destroyed in another order"""
    groups: list[Any] = [dist.new_group() for _ in range(50)]
    for _ in range(2):
        for number, group in enumerate(groups):
            tensor = made(rank.number + number, 20)
            dist.all_reduce(tensor, group=group)
            same(tensor, torch.stack([made(other + number, 20) for other in rank.everyone]).sum(0))
    for group in groups[::2] + groups[1::2]:
        dist.destroy_process_group(group)
    _sums(rank, None, list(rank.everyone))


def new_group_by_its_members_alone(rank: Rank) -> None:
    """new_group with use_local_synchronization: only the members call it"""
    members = [0, 1] if rank.number < 2 else [2, 3]
    group: Any = dist.new_group(members, use_local_synchronization=True)
    _sums(rank, group, members)


def new_group_with_settings(rank: Rank) -> None:
    """new_group with backend, timeout and description"""
    group: Any = dist.new_group(backend=rank.backend, timeout=timedelta(seconds=17), group_desc="with settings")
    assert dist.get_backend(group) == rank.backend
    assert group.group_desc == "with settings"
    _sums(rank, group, list(rank.everyone))


def new_group_on_gloo(rank: Rank) -> None:
    """new_group with backend "gloo" beside the default group"""
    group: Any = dist.new_group(backend="gloo")
    _sums(rank, group, list(rank.everyone))
    _sums(rank, None, list(rank.everyone))


def subgroups(rank: Rank) -> None:
    """new_subgroups and new_subgroups_by_enumeration"""
    group: Any
    group, _ = dist.new_subgroups(2)
    _sums(rank, group, [0, 1] if rank.number < 2 else [2, 3])
    group, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    _sums(rank, group, [0, 2] if rank.number % 2 == 0 else [1, 3])


def ranks_of_groups(rank: Rank) -> None:
    """Ranks in a group in an order of its own"""
    group: Any = dist.new_group([3, 0, 2])
    if rank.number == 1:
        return
    members = dist.get_process_group_ranks(group)
    assert sorted(members) == [0, 2, 3]
    assert members[dist.get_rank(group)] == rank.number
    assert dist.get_global_rank(group, dist.get_rank(group)) == rank.number
    tensor = made(rank.number, 4)
    dist.broadcast(tensor, src=2, group=group)
    same(tensor, made(2, 4))


def mesh_of_one_dimension(rank: Rank) -> None:
    """DeviceMesh 1D"""
    mesh = init_device_mesh("cpu", (rank.size,))
    assert mesh.get_local_rank() == rank.number
    _sums(rank, mesh.get_group(), list(rank.everyone))


def mesh_of_two_dimensions(rank: Rank) -> None:
    """DeviceMesh 2D with names"""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("machine", "local"))
    _sums(rank, mesh["local"].get_group(), [0, 1] if rank.number < 2 else [2, 3])
    _sums(rank, mesh.get_group("machine"), [0, 2] if rank.number % 2 == 0 else [1, 3])
    assert mesh.get_coordinate() == (rank.number // 2, rank.number % 2)


def mesh_of_three_dimensions(rank: Rank) -> None:
    """DeviceMesh 3D"""
    mesh = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("a", "b", "c"))
    for name, members in {
        "a": [0, 2] if rank.number % 2 == 0 else [1, 3],
        "b": [rank.number],
        "c": [0, 1] if rank.number < 2 else [2, 3],
    }.items():
        _sums(rank, mesh.get_group(name), members)


def flattened_mesh(rank: Rank) -> None:
    """DeviceMesh: slices and flattened dimensions"""
    mesh = init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("a", "b", "c"))
    _sums(rank, mesh["b", "c"]._flatten("bc").get_group(), [0, 1] if rank.number < 2 else [2, 3])
    _sums(rank, mesh._flatten("all").get_group(), list(rank.everyone))


def unflattened_mesh(rank: Rank) -> None:
    """DeviceMesh: a dimension made two"""
    mesh = init_device_mesh("cpu", (rank.size,), mesh_dim_names=("all",))
    parts = mesh._unflatten("all", (2, 2), ("machine", "local"))
    _sums(rank, parts.get_group("local"), [0, 1] if rank.number < 2 else [2, 3])
    _sums(rank, parts.get_group("machine"), [0, 2] if rank.number % 2 == 0 else [1, 3])


def mesh_from_groups(rank: Rank) -> None:
    """DeviceMesh.from_group"""
    group: Any = dist.new_group(list(rank.everyone))
    mesh = DeviceMesh.from_group(group, "cpu")
    _sums(rank, mesh.get_group(), list(rank.everyone))


def destroyed_sub_group(rank: Rank) -> None:
    """Destroying a sub-group leaves the others alone"""
    kept, dropped = dist.new_group(), dist.new_group()
    _sums(rank, dropped, list(rank.everyone))
    dist.destroy_process_group(dropped)
    _sums(rank, kept, list(rank.everyone))
    _sums(rank, None, list(rank.everyone))


def overlapping_groups(rank: Rank) -> None:
    """Works in flight at once on groups that overlap, begun in different orders"""
    members = [0, 2] if rank.number % 2 == 0 else [1, 3]
    whole: Any = dist.new_group()
    rail: Any = dist.new_group(members, use_local_synchronization=True)
    tensors = [made(rank.number, 3000), made(rank.number, 2000)]
    pairs = list(zip(tensors, (whole, rail), strict=True))
    in_turn = pairs if rank.number < 2 else pairs[::-1]
    works: list[Any] = [dist.all_reduce(tensor, group=group, async_op=True) for tensor, group in in_turn]
    for work in works:
        work.wait()
    same(tensors[0], torch.stack([made(number, 3000) for number in rank.everyone]).sum(0))
    same(tensors[1], torch.stack([made(number, 2000) for number in members]).sum(0))


def split_group(rank: Rank) -> None:
    """split_group"""
    group: Any = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    _sums(rank, group, [0, 1] if rank.number < 2 else [2, 3])


def split_of_a_split(rank: Rank) -> None:
    """split_group of a part, and of that again, with ranks left out"""
    part: Any = dist.split_group(split_ranks=[[0, 2, 3]])
    if rank.number == 1:
        return
    _sums(rank, part, [0, 2, 3])
    pair: Any = dist.split_group(part, split_ranks=[[0, 2]], timeout=timedelta(seconds=15), group_desc="a pair")
    if rank.number != 2:
        _sums(rank, pair, [0, 3])
        dist.destroy_process_group(pair)
