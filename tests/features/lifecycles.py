"""How default groups are made and ended. The world of this area has none of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import rpc

from features.rank import Rank, all_made, made, same


def _sums(rank: Rank, device: str = "cpu") -> None:
    tensor = made(rank.number, 50).to(device)
    dist.all_reduce(tensor)
    same(tensor, torch.stack(all_made(rank.size, 50)).sum(0))
    dist.barrier()


@contextmanager
def _group(rank: Rank, name: str, backend: str | None = None) -> Iterator[None]:
    rank.init(name, backend)
    try:
        yield
    finally:
        dist.destroy_process_group()


def again_and_again(rank: Rank) -> None:
    """destroy and init again, five times"""
    for round_ in range(5):
        with _group(rank, f"again{round_}"):
            _sums(rank)


def again_on_the_same_store(rank: Rank) -> None:
    """destroy and init again, five times with the same keys in the store"""
    for _ in range(5):
        rank.init("again", timeout=timedelta(seconds=10))
        _sums(rank)
        dist.destroy_process_group()


def init_by_environment(rank: Rank) -> None:
    """init_method env://, with the launcher's store"""
    variables = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(rank.port),
        "RANK": str(rank.number),
        "WORLD_SIZE": str(rank.size),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    os.environ.update(variables)
    try:
        dist.init_process_group(rank.backend)
        _sums(rank)
        dist.destroy_process_group()
    finally:
        for name in variables:
            del os.environ[name]


def init_by_file(rank: Rank) -> None:
    """init_method file://"""
    file = rank.folder("init") / "store"
    dist.init_process_group(rank.backend, init_method=f"file://{file}", rank=rank.number, world_size=rank.size)
    _sums(rank)
    dist.destroy_process_group()


def for_the_cpu(rank: Rank) -> None:
    """The backend by device: cpu:BACKEND"""
    with _group(rank, "for_the_cpu", f"cpu:{rank.backend}"):
        assert dist.get_backend_config() == f"cpu:{rank.backend}"
        _sums(rank)


def beside_gloo(rank: Rank) -> None:
    """The backend by device: cpu:gloo,cuda:BACKEND"""
    with _group(rank, "beside_gloo", f"cpu:gloo,cuda:{rank.backend}"):
        _sums(rank)


def for_both_devices(rank: Rank) -> None:
    """The backend by device: cpu:BACKEND,cuda:BACKEND"""
    with _group(rank, "for_both_devices", f"cpu:{rank.backend},cuda:{rank.backend}"):
        _sums(rank)


@contextmanager
def _in_detail() -> Iterator[None]:
    before = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        yield
    finally:
        dist.set_debug_level(before)


def with_debug_detail(rank: Rank) -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: collectives and sub-groups"""
    with _in_detail(), _group(rank, "with_debug_detail"):
        _sums(rank)
        group: Any = dist.new_group([0, 1, 2])
        if rank.number < 3:
            tensor = torch.ones(3)
            dist.all_reduce(tensor, group=group)
            same(tensor, torch.full((3,), 3.0))


def training_with_debug_detail(rank: Rank) -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: DDP"""
    with _in_detail(), _group(rank, "training_with_debug_detail"):
        model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1))
        model(made(rank.number, 2, 3)).sum().backward()
        expected = torch.stack(all_made(rank.size, 2, 3)).mean(0).sum(0, keepdim=True)
        torch.testing.assert_close(next(model.parameters()).grad, expected)


def mismatch_in_debug_detail(rank: Rank) -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: calls of unequal shapes are an error that names them"""
    with _in_detail(), _group(rank, "mismatch_in_debug_detail"):
        _sums(rank)
        with pytest.raises(RuntimeError) as caught:
            dist.all_reduce(torch.ones(5 if rank.number == 1 else 4))
        assert "4" in str(caught.value)
        assert "5" in str(caught.value)


def timeout_of_the_group(rank: Rank) -> None:
    """A call that a peer does not make is an error after the group's timeout"""
    rank.init("timeout_of_the_group", timeout=timedelta(seconds=10))
    _sums(rank)
    done = rank.store("timeout_of_the_group/done")
    if rank.number:
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(3))
        done.set(str(rank.number), "")
    done.wait([str(number) for number in rank.everyone if number])
    dist.destroy_process_group()


def missing_rank_at_the_monitored_barrier(rank: Rank) -> None:
    """monitored_barrier names the rank that does not come"""
    rank.init("monitored_barrier")
    dist.barrier()
    told = rank.store("monitored_barrier/told")
    if rank.number == 0:
        with pytest.raises(RuntimeError, match="ank 2"):
            dist.monitored_barrier(timeout=timedelta(seconds=1))
        told.set("told", "")
    elif rank.number != 2:
        with pytest.raises(RuntimeError):
            dist.monitored_barrier(timeout=timedelta(seconds=10))  # rank 0 is the one that finds out who is missing
    told.wait(["told"])
    dist.destroy_process_group()


def leaving_after_a_send(rank: Rank) -> None:
    """A rank sends and leaves at once, in a group whose only call that is"""
    for round_ in range(5):
        rank.init(f"leaving_after_a_send{round_}")
        if rank.number == 0:
            dist.send(made(0, 50), 1)
        elif rank.number == 1:
            tensor = torch.empty(50)
            dist.recv(tensor, 0)
            same(tensor, made(0, 50))
        dist.destroy_process_group()


def rpc_beside(rank: Rank) -> None:
    """torch.distributed.rpc beside the group"""
    with _group(rank, "rpc_beside"):
        options = rpc.TensorPipeRpcBackendOptions(
            init_method=f"file://{rank.folder('rpc') / 'store'}", _transports=["uv"], rpc_timeout=20
        )
        rpc.init_rpc(f"worker{rank.number}", rank=rank.number, world_size=rank.size, rpc_backend_options=options)
        same(
            rpc.rpc_sync(f"worker{rank.next}", torch.add, args=(torch.ones(3), rank.number)),
            torch.ones(3) + rank.number,
        )
        _sums(rank)
        rpc.shutdown()
        _sums(rank)


def uninitialised(rank: Rank) -> None:
    """Calls without a group are errors"""
    assert not dist.is_initialized()
    with pytest.raises(ValueError, match="not been initialized"):
        dist.all_reduce(torch.ones(rank.size))
    assert dist.is_backend_available(rank.backend)


def _reconfigure(rank: Rank, name: str, uuid: int, members: list[int]) -> None:
    """The members, in the order of their new ranks."""
    store, c10d = rank.store(name), dist.distributed_c10d
    store.set(f"handle {uuid} {rank.number}", c10d._get_reconfigure_handle())
    handles = [store.get(f"handle {uuid} {member}").decode() for member in members]
    if rank.number in members:
        c10d._reconfigure(uuid, handles).wait()
        assert (dist.get_rank(), dist.get_world_size()) == (members.index(rank.number), len(members))
        total = made(members.index(rank.number), 50)
        dist.all_reduce(total)
        same(total, torch.stack(all_made(len(members), 50)).sum(0))
        dist.barrier()


def members_that_change(rank: Rank) -> None:
    """reconfigure: ranks leave and come back"""
    rank.init("members", enable_reconfigure=True)
    for uuid, members in enumerate(([0, 1, 2, 3], [0, 1, 3], [0, 1, 2, 3], [1, 2])):
        _reconfigure(rank, "members", uuid, members)
    dist.destroy_process_group()


def members_in_another_order(rank: Rank) -> None:
    """reconfigure: ranks in another order"""
    rank.init("order", enable_reconfigure=True)
    for uuid, members in enumerate(([0, 1, 2, 3], [3, 1, 0, 2])):
        _reconfigure(rank, "order", uuid, members)
    dist.destroy_process_group()


def shrunk(rank: Rank) -> None:
    """shrink_group"""
    rank.init("shrunk")
    _sums(rank)
    if rank.number == 1:
        rank.store("shrunk").wait(["shrunk"])
    else:
        dist.shrink_group([1])
        total = torch.ones(3)
        dist.all_reduce(total)
        same(total, torch.full((3,), 3.0))
        assert dist.get_rank() == [0, None, 1, 2][rank.number]
        rank.store("shrunk").set("shrunk", "")
    dist.destroy_process_group()
