"""Fairring's all-reduces on two machines of four emulated devices each."""

from __future__ import annotations

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import start

pytestmark = [
    pytest.mark.gpu,
    emulated_devices.only_there,
]


def _sums(rank: int) -> None:
    """Sums of sizes that split equally among the ranks and of others, in flight together and in one call."""
    ranks = dist.get_world_size()
    sizes = [1, 7, 64, 70_001, 1 << 20]
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        tensors = [(torch.arange(size, device="cuda") % 5 + rank).to(dtype) for size in sizes]
        sums = [(torch.arange(size, device="cuda") % 5 * ranks + sum(range(ranks))).to(dtype) for size in sizes]
        together = [tensor.clone() for tensor in tensors]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        with dist._coalescing_manager(device=tensors[0].device):
            for tensor in together:
                dist.all_reduce(tensor)
        for work in works:
            work.wait()
        for tensor, other, expected in zip(tensors, together, sums, strict=True):
            assert torch.equal(tensor, expected), f"{len(expected)} {dtype}"
            assert torch.equal(other, expected), f"{len(expected)} {dtype}, coalesced"


def test_machines_of_four_devices_sum() -> None:
    ranks = start("2x4", environment={"EMULATED_CUDA_LATE_US": "500"})
    ranks.run(_sums)
    assert ranks.close() == [0] * ranks.size
