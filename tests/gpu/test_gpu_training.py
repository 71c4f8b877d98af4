"""Training with DDP and FSDP2 on CUDA: the same losses as with nccl, and hooks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from gpu_machines import start
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.gpu

STEPS = 20


def _step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> float:
    """Returns the mean of all ranks' losses."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    return total.item()


def _train(rank: int, hook: str) -> list[float]:
    torch.manual_seed(0)
    layers = [nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)]
    model = DistributedDataParallel(nn.Sequential(*layers).cuda(), bucket_cap_mb=1)
    if hook:
        model.register_comm_hook(None, getattr(default_hooks, hook))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    torch.manual_seed(rank + 1)
    for _ in range(STEPS):
        inputs = torch.randn(64, 256, device="cuda")
        loss = nn.functional.cross_entropy(model(inputs), inputs[:, :10].argmax(1))
        losses.append(_step(optimizer, loss))
    parameters = nn.utils.parameters_to_vector(model.parameters()).detach()
    others = [torch.empty_like(parameters) for _ in range(dist.get_world_size())]
    dist.all_gather(others, parameters)
    assert all(torch.equal(one, parameters) for one in others), "ranks ended with different parameters"
    return losses


@pytest.mark.parametrize("hook", ["", "bf16_compress_hook"])
@pytest.mark.parametrize("layout", [pytest.param("2x1", marks=pytest.mark.slow), "2x2"])
def test_ddp_trains_to_the_losses_of_nccl(layout: str, hook: str) -> None:
    losses = {}
    for backend in ("nccl", "fairring"):
        ranks = start(layout, backend)
        losses[backend] = ranks.run(_train, hook)[0]
        ranks.run(_destroy)
        ranks.close()
    assert losses["fairring"][-1] < losses["fairring"][0]
    assert losses["fairring"] == pytest.approx(losses["nccl"], rel=0.02 if hook else 1e-3)


def _train_sharded(rank: int) -> list[float]:
    torch.manual_seed(0)
    model: Any = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).cuda()
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for layer in [*model, model]:
        layer.set_allocate_memory_from_process_group_for_comm(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    torch.manual_seed(rank + 1)
    for _ in range(10):
        loss = model(torch.randn(16, 256, device="cuda")).square().mean()
        losses.append(_step(optimizer, loss))
    return losses


def test_fsdp2_trains_to_the_losses_of_nccl() -> None:
    losses = {}
    for backend in ("nccl", "fairring"):
        ranks = start("2x1", backend)
        losses[backend] = ranks.run(_train_sharded)[0]
        ranks.kill()
    assert losses["fairring"][-1] < losses["fairring"][0]
    assert losses["fairring"] == pytest.approx(losses["nccl"], rel=1e-4)


def _destroy(_rank: int) -> None:
    dist.destroy_process_group()
