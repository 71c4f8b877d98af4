"""DDP under torchrun --max-restarts: in the workers' first life one of them dies between two steps, if told to.

Arguments: backend, and "dies" or "lives".
"""

import json
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group(sys.argv[1])
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    inputs, targets = torch.randn(2, 16, 8), torch.randn(2, 16, 1)
    losses = []
    for step in range(6):
        first_life = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if step == 3 and dist.get_rank() == 1 and first_life and sys.argv[2] == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(inputs[dist.get_rank()]), targets[dist.get_rank()])
        loss.backward()
        optimizer.step()
        whole = loss.detach()
        dist.all_reduce(whole)
        losses.append(whole.item() / 2)
    if dist.get_rank() == 0:
        print("losses", json.dumps(losses), flush=True)
    dist.destroy_process_group()


main()
