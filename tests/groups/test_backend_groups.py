"""Groups that DDP uses, and groups that nobody destroys."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks


def _train(rank: int, backend: str) -> bytes:
    torch.manual_seed(rank)  # DDP has to make the ranks equal
    group = dist.new_group(backend=backend)
    model: Any = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3))
    torch.nn.init.constant_(model[0].bias, float(rank))
    model = torch.nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.002)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + rank)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 20)).square().sum().backward()
        optimizer.step()
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return bytes(flat.view(torch.uint8).tolist())  # without numpy, which a torch may lack


@pytest.mark.smoke
def test_ddp_trains_as_on_gloo_to_the_last_bit(pair: Ranks) -> None:
    ours, theirs = pair.run(_train, "fairring"), pair.run(_train, "gloo")
    assert ours[0] == ours[1]
    assert ours == theirs  # of two addends there is one sum


def _leave_without_waiting(rank: int) -> None:
    dist.all_reduce(torch.full((1 << 16,), float(rank)))
    dist.barrier()
    dist.all_reduce(torch.full((3,), float(rank)), async_op=True)


def test_a_process_that_does_not_destroy_its_group_ends_well(strangers: Ranks) -> None:
    strangers.init()
    strangers.run(_leave_without_waiting)
    assert strangers.close() == [0, 0]
