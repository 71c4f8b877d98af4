"""Programs that are right on NCCL are right here: their devices, their memory, and the order of their calls."""

from __future__ import annotations

from typing import Any

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import start
from ranks import Ranks

from fairring import _core

pytestmark = pytest.mark.gpu

ELEMENTS = emulated_devices.fewer(11_200_000)  # 2.7 slices, so that the streams of a slice and of the next call differ


def _world() -> int:
    return dist.get_world_size()


def carried() -> int:
    """Bytes that this rank has sent over the default group's rails."""
    world: Any = dist.group.WORLD
    moved = _core.traffic(world._get_backend(torch.device("cuda"))) or {}
    return sum(one["bytes"] for level, one in moved.items() if level > 0)


def _sum_on_each_device(rank: int) -> None:
    """The buckets of a model whose parameters lie on two devices of each rank."""
    devices = [torch.device("cuda", index) for index in (2 * rank, 2 * rank + 1)]
    for turn in range(3):
        tensors = [torch.full((ELEMENTS,), rank + turn + 1.0, device=device) for device in devices]
        works = []
        for tensor in tensors:
            before = carried()
            works.append(dist.all_reduce(tensor, async_op=True))
            torch.cuda.synchronize(tensor.device)
            is_ours = carried() > before
            assert is_ours == (tensor.device == devices[0])
        for work, tensor in zip(works, tensors, strict=True):
            with torch.cuda.device(tensor.device):
                work.wait()
            assert torch.equal(tensor, torch.full_like(tensor, 3.0 + 2 * turn))


@emulated_devices.only_there  # four devices
def test_calls_on_a_ranks_second_device_are_nccls() -> None:
    ranks = start("2x1")
    ranks.run(_sum_on_each_device)
    assert ranks.close() == [0, 0]


def _held_after_waits(rank: int) -> tuple[int, float]:
    """Bytes that rank 0 still holds of calls that it has waited for, before rank 1 makes them; and a kept result."""
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(torch.ones(ELEMENTS, device="cuda"))
    torch.cuda.synchronize()
    dist.barrier()
    if rank == 1:
        store.wait(["measured"])
    before = torch.cuda.memory_allocated()
    for _ in range(12):
        tensor = torch.ones(ELEMENTS, device="cuda")
        work: Any = dist.all_reduce(tensor, async_op=True)
        work.wait()
        del work, tensor
    held = torch.cuda.memory_allocated() - before
    if rank == 0:
        store.set("measured", "yes")
    work = dist.all_reduce(torch.ones(ELEMENTS, device="cuda"), async_op=True)
    work.wait()
    (result,) = work.result()
    (value,) = work.get_future().value()
    assert value is result or torch.equal(value, result)
    return held, result.sum().item() / ELEMENTS


def test_tensors_are_let_go_when_a_stream_waits_for_their_call(two_gpu_machines: Ranks) -> None:
    for held, result in two_gpu_machines.run(_held_after_waits):
        assert held == 0
        assert result == 2
