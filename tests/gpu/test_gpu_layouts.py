"""DDP and every collective on machines of four devices, on four machines, and on three of unequal ranks in turn."""

from __future__ import annotations

import hashlib

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from every_call import EveryCall, fault
from gpu_machines import LAYOUTS, carried, start
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.gpu

STAGING = 512 << 10
SMALL_SLICES = {"FAIRRING_SLICE_SIZE": "64KiB", "FAIRRING_TOTAL_MEMORY": str(STAGING)}
COMMUNICATOR = 64 << 10  # bytes that emulated NCCL takes for each
ELEMENTS = 8 * 3 * 3001  # a block for each rank of any layout; several slices
Hashes = dict[str, str]


def _hash(*tensors: torch.Tensor) -> str:
    bits = hashlib.sha256()
    for tensor in tensors:
        bits.update(bytes(tensor.detach().cpu().flatten().view(torch.uint8).tolist()))
    return bits.hexdigest()


def _noise(rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """No other order of sums gives these bits of their sum."""
    return (torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(rank)) * 1000).to(dtype).cuda()


def _reduced(rank: int) -> Hashes:
    """Alike on all ranks."""
    hashes = {}
    for name in ("SUM", "AVG", "MIN"):
        for dtype in (torch.float32, torch.bfloat16):
            tensor = _noise(rank, dtype)
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
            hashes[f"all_reduce {name} {dtype}"] = _hash(tensor)
    together = [_noise(rank)[:size].clone() for size in (1, 7, 4001, 60_000)]
    with dist._coalescing_manager(device=together[0].device):
        for tensor in together:
            dist.all_reduce(tensor)
    hashes["all_reduce of several"] = _hash(*together)
    part = torch.empty(ELEMENTS // dist.get_world_size(), device="cuda")
    whole = torch.empty(ELEMENTS, device="cuda")
    for name in ("SUM", "AVG"):
        dist.reduce_scatter_tensor(part, _noise(rank), op=getattr(dist.ReduceOp, name))
        dist.all_gather_into_tensor(whole, part)
        hashes[f"reduce_scatter_tensor {name}, all_gather_into_tensor"] = _hash(whole)
    return hashes


def _trained(rank: int) -> Hashes:
    """The losses of all ranks and the parameters, after some steps of DDP in several buckets."""
    torch.manual_seed(0)
    layers = [nn.Linear(64, 200), nn.GELU(), nn.Linear(200, 33)]
    model = DistributedDataParallel(nn.Sequential(*layers).cuda(), bucket_cap_mb=0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    losses = []
    for _ in range(3):
        loss = model(torch.randn(8, 64).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    means = torch.stack(losses)
    dist.all_reduce(means, op=dist.ReduceOp.AVG)
    assert means[-1] < means[0]
    return {"DDP": _hash(means, *model.parameters())}


# The calls that are NCCL's.
MOVED = [
    "all_gather",
    "all_to_all_single",
    "all_to_all",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "batch_isend_irecv",
]


def _communicators(_rank: int) -> int:
    """How many NCCL has memory of the device for, once the first call has been made."""
    tensor = torch.ones(1000, device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    return (before - torch.cuda.mem_get_info()[0] - STAGING) // COMMUNICATOR


def _all(rank: int) -> tuple[Hashes, bool]:
    hashes = {**_reduced(rank), **_trained(rank)}
    has_carried = carried() > 0
    calls = EveryCall(device="cuda", dtype=torch.int64, shape=(1, 1000))
    assert [text for name in MOVED if (text := fault(calls, name))] == []
    return hashes, has_carried


@pytest.mark.parametrize("layout", ["2x4", "4x2", "3+1+2 in turn"])
def test_every_call_has_the_same_bits_on_all_ranks(layout: str) -> None:
    ranks = start(layout, environment=SMALL_SLICES)
    taken = ranks.run(_communicators)
    if emulated_devices.ARE_HERE:
        assert taken == [2 * (LAYOUTS[layout].count(name) > 1) for name in LAYOUTS[layout]]
    seen = ranks.run(_all)
    assert seen == [(seen[0][0], True)] * ranks.size
    assert ranks.close() == [0] * ranks.size
