"""Programs that are right on NCCL are right here: their devices, their memory, and the order of their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import carried, start
from ranks import Ranks

pytestmark = pytest.mark.gpu

ELEMENTS = emulated_devices.fewer(11_200_000)  # 2.7 slices, so that the streams of a slice and of the next call differ


def _world() -> int:
    return dist.get_world_size()


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
        assert result == _RANKS


_RANKS = 2
Calls = Callable[[torch.Tensor, int], list[Any]]


def _twice(tensor: torch.Tensor, _rank: int) -> list[Any]:
    return [dist.all_reduce(tensor, async_op=True), dist.all_reduce(tensor, async_op=True)]


def _ours_then_nccls(tensor: torch.Tensor, _rank: int) -> list[Any]:
    return [dist.all_reduce(tensor, async_op=True), dist.broadcast(tensor, 0, async_op=True)]


def _nccls_then_ours(tensor: torch.Tensor, _rank: int) -> list[Any]:
    return [dist.broadcast(tensor, 1, async_op=True), dist.all_reduce(tensor, async_op=True)]


def _gathered_then_summed(tensor: torch.Tensor, _rank: int) -> list[Any]:
    mine = tensor.chunk(_RANKS)[0].clone()
    return [dist.all_gather_into_tensor(tensor, mine, async_op=True), dist.all_reduce(tensor, async_op=True)]


def _wrong(rank: int, calls: Calls, right: list[float]) -> int:
    """The elements that are wrong after calls on one tensor, of which only the last is waited for."""
    wrong = 0
    dist.broadcast(torch.ones(1, device="cuda"), 0)
    dist.all_reduce(torch.ones(ELEMENTS, device="cuda"))  # what is made at first use is there
    dist.barrier()
    for _ in range(5):
        tensor = torch.full((ELEMENTS,), rank + 1.0, device="cuda")
        works = calls(tensor, rank)
        works[-1].wait()
        expected = torch.cat([torch.full_like(part, value) for part, value in zip(tensor.chunk(2), right, strict=True)])
        wrong += int((tensor != expected).sum().item())
    return wrong


def _gathered_from_a_dropped_input(rank: int) -> list[float]:
    """Rank 0 uses its input's memory again before rank 1 makes its calls."""
    store = dist.distributed_c10d._get_default_store()
    for counts in (False, True):  # the first time ranks connect, for which they wait for each other
        dist.barrier()
        if rank == 1 and counts:
            store.wait(["used again"])
        mine = torch.full((ELEMENTS,), rank + 1.0, device="cuda")
        parts = [torch.empty_like(mine) for _ in range(_RANKS)]
        dist.all_gather(parts, mine, async_op=True)
        work: Any = dist.all_reduce(parts[0], async_op=True)
        del mine
        torch.full((ELEMENTS,), -1.0, device="cuda")
        if rank == 0 and counts:
            torch.cuda.current_stream().synchronize()
            store.set("used again", "yes")
        work.wait()
    values: list[float] = parts[0].unique().tolist()
    return values


def test_an_input_is_kept_though_another_call_began_behind_its_own(two_gpu_machines: Ranks) -> None:
    assert two_gpu_machines.run(_gathered_from_a_dropped_input) == [[2.0], [2.0]]


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        (_twice, [6.0, 6.0]),
        (_ours_then_nccls, [3.0, 3.0]),
        (_nccls_then_ours, [4.0, 4.0]),
        (_gathered_then_summed, [2.0, 4.0]),
    ],
)
def test_calls_on_the_same_memory_keep_their_order(two_gpu_machines: Ranks, calls: Calls, right: list[float]) -> None:
    assert two_gpu_machines.run(_wrong, calls, right) == [0, 0]
