"""Accelerate: its Accelerator's prepare, backward, gather and reduce."""

import json
import sys

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    dist.init_process_group(sys.argv[1])  # on CPUs Accelerate makes no group of a backend that it doesn't know
    accelerator = Accelerator(cpu=True)
    set_seed(0)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    model, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), DataLoader(data, 8))
    losses = []
    for _ in range(3):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
    assert accelerator.gather(torch.tensor([accelerator.process_index])).tolist() == [0, 1]
    assert accelerator.gather_for_metrics(["a"], use_gather_object=True) == ["a", "a"]
    accelerator.wait_for_everyone()
    assert dist.get_backend() == sys.argv[1]
    if accelerator.is_main_process:
        print("losses", json.dumps(losses), flush=True)
    accelerator.end_training()


main()
