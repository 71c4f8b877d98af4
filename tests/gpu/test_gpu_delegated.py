"""NCCL's part of a group on CUDA tensors beside ours: collectives, batches of sends, options, memory, FSDP2."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gpu_machines import start
from ranks import Ranks, backend_of, on_ranks
from standard_error import standard_error

pytestmark = pytest.mark.gpu


def _of(rank: int, elements: int = 4) -> torch.Tensor:
    return torch.arange(elements, device="cuda", dtype=torch.float32) + 100 * rank


def _await(work: Any) -> None:
    """Until the host knows of its end. Of Fairring's calls it learns a moment after the device is done."""
    while not work.is_completed():
        os.sched_yield()


def _collectives(rank: int) -> None:
    """Beside an all-reduce of ours before and after each."""
    ranks = dist.get_world_size()
    ours = torch.ones(1000, device="cuda")
    everybodys = torch.stack([_of(other) for other in range(ranks)])

    broadcast = _of(rank)
    dist.broadcast(broadcast, 1)
    dist.all_reduce(ours)
    gathered = torch.empty(ranks, 4, device="cuda")
    dist.all_gather_into_tensor(gathered, _of(rank))
    dist.all_reduce(ours)
    reduced = torch.empty(2, device="cuda")
    dist.reduce_scatter_tensor(reduced, _of(rank, 2 * ranks))
    dist.all_reduce(ours)
    exchanged = torch.empty(ranks, device="cuda")
    dist.all_to_all_single(exchanged, _of(rank, ranks))
    dist.barrier()

    assert torch.equal(broadcast, _of(1))
    assert torch.equal(gathered, everybodys)
    sums = torch.stack([_of(other, 2 * ranks) for other in range(ranks)]).sum(0)
    assert torch.equal(reduced, sums[2 * rank : 2 * rank + 2])
    assert torch.equal(exchanged, torch.stack([_of(other, ranks)[rank] for other in range(ranks)]))
    assert torch.equal(ours, torch.full_like(ours, float(ranks**3)))


def test_other_collectives_are_nccls(gpu_cluster: Ranks) -> None:
    gpu_cluster.run(_collectives)


@on_ranks("gpu_cluster")
def test_batched_sends_and_receives_are_nccls(rank: int) -> None:
    """To both neighbours on a ring, several of them, with an all-reduce of ours under way."""
    ranks = dist.get_world_size()
    ours = torch.ones(1 << 20, device="cuda")
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    received = [torch.empty(1000, device="cuda") for _ in range(4)]
    reducing = dist.all_reduce(ours, async_op=True)
    operations = []
    for number, tensor in enumerate(received):
        operations.append(dist.P2POp(dist.isend, _of(rank + 10 * number, 1000), after))
        operations.append(dist.P2POp(dist.irecv, tensor, before))
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    reducing.wait()
    for number, tensor in enumerate(received):
        assert torch.equal(tensor, _of(before + 10 * number, 1000))
    assert torch.equal(ours, torch.full_like(ours, float(ranks)))


@on_ranks("gpu_cluster")
def test_messages_between_two_ranks_need_no_other_rank(rank: int) -> None:
    """The first two ranks exchange messages in a group in which the others never make a call on their devices."""
    group: Any = dist.new_group()
    received = torch.empty(1000, device="cuda")
    if rank == 0:
        dist.send(_of(7, 1000), 1, group=group)
        dist.recv(received, 1, group=group)
    elif rank == 1:
        dist.recv(received, 0, group=group)
        dist.send(received + 1, 0, group=group)
    if rank < 2:
        assert torch.equal(received, _of(7, 1000) + (1 - rank))
    dist.barrier()
    dist.destroy_process_group(group)


def _on_devices_of_other_numbers(rank: int) -> None:
    """A barrier comes first, which names the device or none: NCCL is made on the device that the calls are on."""
    last = torch.cuda.device_count() - 1
    if rank == 1:
        torch.cuda.set_device(last)
    for devices in (None, [torch.cuda.current_device()]):
        group: Any = dist.new_group()
        dist.barrier(group=group, device_ids=devices)
        tensor = _of(rank)
        dist.broadcast(tensor, 1, group=group)
        assert torch.equal(tensor, _of(1))
        dist.destroy_process_group(group)


def test_a_first_barrier_makes_nccl_on_the_ranks_own_device() -> None:
    ranks = start("2x1", environment={"FAIRRING_CUDA": "off"})
    ranks.run(_on_devices_of_other_numbers)
    assert ranks.close() == [0, 0]


@on_ranks("two_gpu_machines")
def test_calls_of_nccl_say_that_they_have_succeeded(rank: int) -> None:
    """c10d's flight recorder asks a call that is over at once: torch's own Work of NCCL throws then."""
    tensor = torch.full((4,), float(rank), device="cuda")
    alone = dist.broadcast(tensor, 1, async_op=True)
    with dist._coalescing_manager(device=tensor.device, async_ops=True) as together:
        dist.all_gather_into_tensor(torch.empty(2 * len(tensor), device="cuda"), tensor)
    works: list[Any] = [alone, *together.works]
    for work in works:
        work.wait()
        _await(work)
        assert work.is_success()


def _rest(rank: int) -> None:
    """The calls that are NCCL's while Fairring's own are off, and those that nothing else here makes."""
    ranks = dist.get_world_size()
    world: Any = dist.group.WORLD
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    total = float(sum(range(ranks)))

    together = [torch.full((size,), float(rank), device="cuda") for size in (3, 1000)]
    world.allreduce_coalesced(together, dist.AllreduceCoalescedOptions()).wait()
    parts = [torch.empty(4, device="cuda") for _ in range(2)]
    world.reduce_scatter_tensor_coalesced(parts, [_of(rank, 4 * ranks), _of(rank, 4 * ranks) * 2]).wait()
    wholes = [torch.empty(4 * ranks, device="cuda") for _ in range(2)]
    world.allgather_into_tensor_coalesced(wholes, [_of(rank), _of(rank) * 2]).wait()
    for size, tensor in zip((3, 1000), together, strict=True):
        assert torch.equal(tensor, torch.full((size,), total, device="cuda"))
    sums = torch.stack([_of(other, 4 * ranks) for other in range(ranks)]).sum(0)[4 * rank : 4 * rank + 4]
    everybodys = torch.cat([_of(other) for other in range(ranks)])
    for factor, part, whole in zip((1, 2), parts, wholes, strict=True):
        assert torch.equal(part, sums * factor)
        assert torch.equal(whole, everybodys * factor)

    received = torch.empty(4, device="cuda")
    if rank % 2 == 0:  # they wait for one another
        dist.send(_of(rank), after)
        dist.recv(received, before)
    else:
        dist.recv(received, before)
        dist.send(_of(rank), after)
    assert torch.equal(received, _of(before))
    with pytest.raises(RuntimeError):
        world.recv_anysource([received], 0).wait()

    gathered = torch.empty(4 * ranks if rank == 1 else 0, device="cuda")
    if hasattr(dist, "gather_into_tensor"):  # 2.14
        dist.gather_into_tensor(_of(rank), gathered if rank == 1 else None, dst=1)
        assert rank != 1 or torch.equal(gathered, everybodys)
    shard = torch.empty(4, device="cuda")
    dist.reduce_scatter(shard, list(_of(rank, 4 * ranks).chunk(ranks)))
    assert torch.equal(shard, sums)
    uneven = torch.empty(sum(1 + (rank + other) % 2 for other in range(ranks)), device="cuda")
    sizes = [1 + (rank + other) % 2 for other in range(ranks)]
    dist.all_to_all_single(uneven, torch.full((sum(sizes),), float(rank), device="cuda"), sizes, sizes)
    assert torch.equal(uneven, torch.arange(ranks, device="cuda").float().repeat_interleave(torch.tensor(sizes).cuda()))
    dist.barrier(device_ids=[torch.cuda.current_device()])


def test_the_rest_of_the_calls(gpu_cluster: Ranks) -> None:
    gpu_cluster.run(_rest)


def test_all_calls_are_nccls_while_fairrings_are_off() -> None:
    ranks = start("2x1", environment={"FAIRRING_CUDA": "off"})
    ranks.run(_rest)
    ranks.run(_collectives)
    ranks.run(_futures_of_blocks)
    ranks.run(_blocked_stream, "block")
    assert ranks.close() == [0, 0]


def _futures_of_blocks(rank: int) -> None:
    """A block of calls is one Work. Its future's callback comes behind them, without a wait, and sees all values."""
    ranks = dist.get_world_size()
    device = torch.device("cuda", torch.cuda.current_device())
    inputs = [torch.zeros(elements, device="cuda").add_(float(rank)) for elements in (50_000, 7)]
    outputs = [torch.empty(ranks * len(one), device="cuda") for one in inputs]
    with dist._coalescing_manager(device=device, async_ops=True) as gathering:
        for output, one in zip(outputs, inputs, strict=True):
            dist.all_gather_into_tensor(output, one)
    received = torch.empty(1000, device="cuda")
    with dist._coalescing_manager(device=device, async_ops=True) as passing:
        dist.isend(_of(rank, 1000), (rank + 1) % ranks)
        dist.irecv(received, (rank - 1) % ranks)

    for works in (gathering.works, passing.works):
        (work,) = works
        values = work.get_future().wait()
        assert values
        work.wait()
        _await(work)
        assert work.is_success()
    for output, one in zip(outputs, inputs, strict=True):
        assert torch.equal(output, torch.arange(ranks, device="cuda").float().repeat_interleave(len(one)))
    assert torch.equal(received, _of((rank - 1) % ranks, 1000))


def test_a_block_of_calls_is_one_work_with_a_future(gpu_cluster: Ranks) -> None:
    gpu_cluster.run(_futures_of_blocks)


def _blocked_stream(rank: int, how: str) -> None:
    """Rank 1 makes its call once rank 0 has enqueued a copy of the result behind block_current_stream()."""
    store, enqueued = dist.distributed_c10d._get_default_store(), f"enqueued {how}"
    ranks, elements = dist.get_world_size(), 50_000
    device = torch.device("cuda", torch.cuda.current_device())
    for late in (False, True):  # warm: what is made at first use waits for all ranks
        tensor = torch.full((elements,), rank + 1.0, device="cuda")
        result = torch.zeros(ranks * elements, device="cuda") if how == "block" else tensor
        torch.cuda.synchronize()
        if late and rank == 1:
            store.wait([enqueued])
        if how == "block":
            with dist._coalescing_manager(device=device, async_ops=True) as gathering:
                dist.all_gather_into_tensor(result, tensor)
            (work,) = gathering.works
        else:
            work = dist.all_reduce(tensor, async_op=True)
        work.block_current_stream()
        seen = result.clone()
        if late and rank == 0:
            store.set(enqueued, "")
        expected = torch.arange(1.0, ranks + 1, device="cuda").repeat_interleave(elements)
        assert torch.equal(seen, expected if how == "block" else torch.full_like(seen, ranks * (ranks + 1) / 2))


@pytest.mark.parametrize("how", ["call", "block"])
def test_the_current_stream_can_be_blocked_until_a_call_is_over(two_gpu_machines: Ranks, how: str) -> None:
    two_gpu_machines.run(_blocked_stream, how)


def _allocate(rank: int) -> bool:
    device = torch.device("cuda", torch.cuda.current_device())
    ours, stock = backend_of(device="cuda"), backend_of(dist.new_group(backend="nccl"), "cuda")
    able = ours.supports_tensor_alloc(device)
    assert able == stock.supports_tensor_alloc(device)
    if able:
        tensor = ours.allocate_tensor(1000, dtype=torch.float32, device=device)
        tensor.fill_(float(rank))
        dist.broadcast(tensor, 1)
        assert torch.equal(tensor, torch.ones_like(tensor))
    return bool(able)


def test_memory_is_allocated_by_nccl_where_it_can(two_gpu_machines: Ranks) -> None:
    assert len(set(two_gpu_machines.run(_allocate))) == 1


def _abort(rank: int) -> list[str]:
    """Rank 1 never makes the call; rank 0 gives up. What later calls of Fairring's and of NCCL's say there."""
    if rank == 1:
        return []
    tensor = torch.ones(1000, device="cuda")
    dist.broadcast(tensor, 1, async_op=True)
    backend_of(device="cuda").abort()
    torch.cuda.synchronize()  # NCCL's kernel has ended
    texts = []
    for call in (lambda: dist.all_reduce(tensor), lambda: dist.broadcast(tensor, 1)):
        with pytest.raises(dist.DistBackendError) as refused:
            call()
        texts.append(str(refused.value))
    return texts


def test_abort_ends_a_call_of_nccls() -> None:
    ranks = start("2x1")
    ranks.run(_collectives)
    ours, nccls = ranks.run(_abort)[0]
    assert "rank 0 aborted its process group" in ours
    assert nccls == ours
    ranks.kill()


def _ways_that_are_told(_rank: int) -> list[str]:
    with standard_error(info=True) as lines:
        group: Any = dist.new_group()
        for _ in range(3):
            dist.all_reduce(torch.ones(10, device="cuda"))
            dist.all_reduce(torch.ones(10, device="cuda"), group=group)
    return [line.partition("are ")[2] for line in lines if "all-gathers of CUDA tensors are" in line]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, r"fairring's: NCCL inside machines, tcp between them, .* from pinned memory; not GPUDirect, .*"),
        pytest.param({"FAIRRING_CUDA": "off"}, "NCCL's as a whole: FAIRRING_CUDA is off", marks=pytest.mark.slow),
        pytest.param(
            {"FAIRRING_TRANSPORT": "tensorpipe:shm"},
            r"fairring's: NCCL inside machines, shm between them, .*",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["tcp", "off", "tensorpipe"],
)
def test_the_way_of_cuda_tensors_is_said_once(variables: dict[str, str], expected: str) -> None:
    ranks = start("2x1", environment=variables)
    for told in ranks.run(_ways_that_are_told):
        (way,) = told
        assert re.fullmatch(expected, way)
    ranks.kill()
