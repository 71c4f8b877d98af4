"""A rank: a few DDP steps on the backend named by the argument; prints losses and a hash of the parameters."""

import hashlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import fairring  # noqa: F401


def main() -> None:
    dist.init_process_group(sys.argv[1])
    torch.manual_seed(dist.get_rank())  # DDP makes the parameters equal
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256), torch.nn.BatchNorm1d(256)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(256, 10)), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.Generator().manual_seed(100 + dist.get_rank())
    losses = []
    for _ in range(6):
        x = torch.randn(32, 256, generator=inputs)
        loss = torch.nn.functional.cross_entropy(model(x), x[:, :10].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach(), op=dist.ReduceOp.SUM)
        losses.append(loss.item())
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print(digest.hexdigest(), *losses)
    dist.destroy_process_group()


main()
