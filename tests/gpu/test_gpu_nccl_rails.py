"""All-reduces whose rails are NCCL's: FAIRRING_CUDA_RAILS=nccl."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import start
from ranks import Ranks

pytestmark = pytest.mark.gpu

NCCL = {"FAIRRING_CUDA_RAILS": "nccl"}
# Emulated devices take half a minute for each, so `make test-emulated-cuda` leaves out the others.
LAYOUTS = [pytest.param("2x1", marks=pytest.mark.slow), pytest.param("3x1", marks=pytest.mark.slow), "2x2"]
SIZES = [0, 1, 3, 1000, 70_001, (4 << 20) + 5]  # elements; the last takes several slices
DTYPES = [torch.float32, torch.bfloat16, torch.int32]


def _hash_of_sums(rank: int) -> str:
    """Floats that no order of sums but one gives these bits of, in flight together and in one call."""
    torch.manual_seed(rank)
    bits = hashlib.sha256()
    for dtype in DTYPES:
        tensors = [(torch.randn(size) * 1000).to(dtype).cuda() for size in SIZES]
        together = [tensor.clone() for tensor in tensors]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        with dist._coalescing_manager(device=tensors[0].device):
            for tensor in together:
                dist.all_reduce(tensor)
        for work in works:
            work.wait()
        for tensor in tensors + together:
            bits.update(bytes(tensor.cpu().view(torch.uint8).tolist()))
    return bits.hexdigest()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_bits_are_those_of_pinned_rails_on_all_ranks(layout: str) -> None:
    hashes = set()
    for variables in ({}, NCCL):
        ranks = start(layout, environment={"FAIRRING_SLICE_SIZE": "1MiB", "FAIRRING_TOTAL_MEMORY": "4MiB", **variables})
        hashes |= set(ranks.run(_hash_of_sums))
        assert ranks.close() == [0] * ranks.size
    assert len(hashes) == 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[Ranks]:
    ranks = start("2x2", environment=NCCL)
    yield ranks
    assert ranks.close() == [0] * ranks.size


def _operations(rank: int) -> None:
    ranks = dist.get_world_size()
    for name, expected in {"SUM": ranks * (ranks + 1) / 2, "AVG": (ranks + 1) / 2, "MAX": ranks, "MIN": 1.0}.items():
        tensor = torch.full((5000,), rank + 1.0, device="cuda")
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
        assert torch.equal(tensor, torch.full_like(tensor, expected)), name


def test_operations(cluster: Ranks) -> None:
    cluster.run(_operations)


def _captured(rank: int) -> None:
    """A graph of all three calls, launched between calls that are not captured, to the bits of those."""
    ranks = dist.get_world_size()
    torch.manual_seed(rank)
    noise = [torch.randn(4 * 70_001, device="cuda") * 1000 for _ in range(3)]
    inputs = torch.empty_like(noise[0])
    part, whole = torch.empty(len(inputs) // ranks, device="cuda"), torch.empty_like(inputs)

    def calls() -> torch.Tensor:
        reduced = inputs * 2
        dist.all_reduce(reduced)
        dist.reduce_scatter_tensor(part, reduced, op=dist.ReduceOp.AVG)
        dist.all_gather_into_tensor(whole, part)
        return reduced

    calls()  # makes what a capture can't
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        reduced = calls()
    for one in noise:
        inputs.copy_(one)
        graph.replay()
        seen = [reduced.clone(), whole.clone()]
        eager = calls()
        assert torch.equal(seen[0], eager)
        assert torch.equal(seen[1], whole)
        graph.replay()
        assert torch.equal(seen[0], reduced)
    if emulated_devices.ARE_HERE and ranks > 2:  # of two, every order has the same sum
        stock: Any = dist.new_group(backend="nccl")
        total = inputs * 2
        dist.all_reduce(total, group=stock)
        assert not torch.equal(total, reduced), "calls that are NCCL's as a whole would pass"
    torch.cuda.synchronize()
    graph.reset()


def test_graphs_capture_the_calls(cluster: Ranks) -> None:
    cluster.run(_captured)


def test_graphs_capture_the_calls_where_machines_have_one_device() -> None:
    ranks = start("2x1", environment=NCCL)
    ranks.run(_captured)
    assert ranks.close() == [0, 0]


def _losses(rank: int) -> list[float]:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    losses = []
    for _ in range(4):
        loss = model(torch.randn(8, 64).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(mean.item())
    return losses


def test_ddp_trains_to_the_losses_of_pinned_rails(cluster: Ranks) -> None:
    ranks = start("2x2")
    expected = ranks.run(_losses)
    assert ranks.close() == [0] * ranks.size
    assert cluster.run(_losses) == expected


def _reduce(_rank: int) -> None:
    dist.all_reduce(torch.ones(5000, device="cuda"))
    torch.cuda.synchronize()


def _error(rank: int) -> str:
    if rank == 1:
        os._exit(3)
    try:
        for _ in range(2):
            dist.all_reduce(torch.ones(5 << 20, device="cuda"))
            torch.cuda.synchronize()
    except (RuntimeError, dist.DistBackendError) as error:
        return str(error)
    return ""


def test_a_peer_that_dies_while_a_call_is_in_flight_is_an_error_that_names_it() -> None:
    ranks = start("2x1", timeout_seconds=60, environment=NCCL)
    ranks.run(_reduce)
    begun = ranks.start(_error)
    (text,) = ranks.finish([rank for rank in begun if rank == 0])
    assert "rank 1" in text, text
    ranks.kill()


def _late(rank: int) -> str:
    return _error(rank) if rank == 0 else ""


@pytest.mark.slow
def test_a_peer_that_does_not_come_is_an_error_after_the_timeout() -> None:
    ranks = start("2x1", timeout_seconds=10, environment=NCCL)
    ranks.run(_reduce)
    text = ranks.run(_late)[0]
    assert "all_reduce" in text, text
    ranks.kill()
