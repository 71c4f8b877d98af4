"""A small model, its data, and how one process alone trains it: what parallel trainings are compared with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from features.rank import Rank, close, same

ROWS = 16
INPUTS = 8
OUTPUTS = 4
STEPS = 3


def model() -> nn.Sequential:
    """The same parameters wherever it is made."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(INPUTS, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, OUTPUTS))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randn(ROWS, INPUTS, generator=generator), torch.randn(ROWS, OUTPUTS, generator=generator)


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def loss(net: Callable[..., torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(net(inputs), targets)


def trained_alone(net: nn.Module | None = None, make: Callable[[nn.Module], Any] = sgd) -> nn.Module:
    """On whole batches."""
    net = net or model()
    optimizer = make(net)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(net, *batch(step)).backward()
        optimizer.step()
    return net


def train(rank: Rank, net: nn.Module, optimizer: Any = None) -> nn.Module:
    """On this rank's rows of each batch: equal parts, so that the mean of the gradients is the batch's gradient."""
    optimizer = optimizer or sgd(net)
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs, targets = batch(step)
        loss(net, rank.part(inputs), rank.part(targets)).backward()
        optimizer.step()
    return net


def same_parameters(actual: nn.Module, expected: nn.Module, tolerance: float = 1e-5) -> None:
    """Compares parameters pairwise; sharded ones are made whole. Names may differ by wrappers' prefixes."""
    pairs = zip(actual.parameters(), expected.parameters(), strict=True)
    for mine, theirs in pairs:
        close(getattr(mine, "full_tensor", mine.detach)().detach(), theirs.detach(), tolerance)


def same_on_all_ranks(rank: Rank, net: nn.Module) -> None:
    """Every bit."""
    flat = torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
    others = [torch.empty_like(flat) for _ in rank.everyone]
    dist.all_gather(others, flat)
    for other in others:
        same(other, flat)


def copied(net: nn.Module) -> nn.Module:
    return copy.deepcopy(net)
