"""DistributedDataParallel in its modes, against one process that trains on the whole batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as Ddp
from torch.utils.checkpoint import checkpoint

from features import training
from features.rank import Rank, close, made
from features.training import same_on_all_ranks, same_parameters, train, trained_alone


def plain(rank: Rank) -> None:
    """DDP"""
    same_parameters(train(rank, Ddp(training.model())), trained_alone())


def small_buckets(rank: Rank) -> None:
    """DDP with many small buckets"""
    same_parameters(train(rank, Ddp(training.model(), bucket_cap_mb=1e-4)), trained_alone())


def start_from_rank_0(rank: Rank) -> None:
    """DDP begins with the parameters and buffers of rank 0"""
    net = training.model()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(rank.number)
    same_parameters(Ddp(net), training.model())


def buckets_as_views(rank: Rank) -> None:
    """DDP: gradient_as_bucket_view"""
    same_parameters(train(rank, Ddp(training.model(), gradient_as_bucket_view=True)), trained_alone())


def static_graph(rank: Rank) -> None:
    """DDP: static_graph, with activation checkpoints"""

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = training.model()

        def forward(self, inputs: torch.Tensor) -> Any:
            return checkpoint(self.net, inputs, use_reentrant=False)

    same_parameters(train(rank, Ddp(Checkpointed(), static_graph=True)), trained_alone())


class _Branches(nn.Module):
    """Ranks of even number use one half, the others the other."""

    def __init__(self) -> None:
        super().__init__()
        self.halves = nn.ModuleList([nn.Linear(3, 1, bias=False), nn.Linear(3, 1, bias=False)])

    def forward(self, inputs: torch.Tensor, which: int) -> Any:
        return self.halves[which](inputs)


def unused_parameters(rank: Rank) -> None:
    """DDP: find_unused_parameters, where ranks use different parts"""
    net = Ddp(_Branches(), find_unused_parameters=True)
    for _ in range(2):
        net.zero_grad()
        net(made(rank.number, 2, 3), rank.number % 2).sum().backward()
        for which, half in enumerate(net.module.halves):
            users = [made(number, 2, 3).sum(0, keepdim=True) for number in rank.everyone if number % 2 == which]
            close(half.weight.grad, torch.stack(users).sum(0) / rank.size)


def without_synchronisation(rank: Rank) -> None:
    """DDP: no_sync, gradients summed over two steps"""
    net, alone = Ddp(training.model()), training.model()
    with net.no_sync():
        training.loss(net, *map(rank.part, training.batch(0))).backward()
    training.loss(net, *map(rank.part, training.batch(1))).backward()
    for step in range(2):
        training.loss(alone, *training.batch(step)).backward()
    for mine, theirs in zip(net.parameters(), alone.parameters(), strict=True):
        close(mine.grad, theirs.grad)


def uneven_inputs(rank: Rank) -> None:
    """DDP: join with uneven inputs"""
    net = Ddp(nn.Linear(3, 1, bias=False))
    with torch.no_grad():
        net.module.weight.zero_()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    with net.join():
        for step in range(1 + rank.number):
            optimizer.zero_grad()
            net(made(rank.number + step, 2, 3)).sum().backward()
            optimizer.step()
    expected = torch.zeros(1, 3)
    for step in range(rank.size):  # who has no more inputs counts as zeros, and the divisor stays the world's size
        there = [made(number + step, 2, 3).sum(0, keepdim=True) for number in rank.everyone if number >= step]
        expected -= torch.stack(there).sum(0) / rank.size
    close(net.module.weight.detach(), expected)


def join_of_several(rank: Rank) -> None:
    """Join of a DDP with ranks that run out of inputs, as an error on all of them"""
    net = Ddp(nn.Linear(3, 1))

    def until_no_more_inputs() -> None:
        with Join([net], throw_on_early_termination=True):
            for _ in range(1 + rank.number):
                net(made(rank.number, 2, 3)).sum().backward()

    with pytest.raises(RuntimeError, match="exhausted"):
        until_no_more_inputs()


def buffers(rank: Rank) -> None:
    """DDP: buffers are those of rank 0 at each step"""
    net = Ddp(nn.BatchNorm1d(3, affine=True))
    for step in range(2):
        net(made(rank.number + step, 5, 3)).sum().backward()
    alone = nn.BatchNorm1d(3)
    for step in range(2):
        alone(made(step, 5, 3))
    if rank.number == 0:
        close(net.module.running_mean, alone.running_mean)
    net(made(rank.number, 5, 3))
    means = [torch.empty(3) for _ in rank.everyone]
    dist.all_gather(means, net.module.running_mean)
    assert not torch.equal(means[0], means[1])


def synchronous_batch_norm(rank: Rank) -> None:
    """SyncBatchNorm"""
    net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(3)))
    parts = [made(number, 5, 3) for number in rank.everyone]
    close(net(parts[rank.number]), nn.BatchNorm1d(3)(torch.cat(parts)).chunk(rank.size)[rank.number])


def mixed_precision(rank: Rank) -> None:
    """DDP: mixed precision by autocast to bfloat16"""
    net = Ddp(training.model())
    optimizer = training.sgd(net)
    for step in range(training.STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = training.loss(net, *map(rank.part, training.batch(step)))
        value.backward()
        optimizer.step()
    same_parameters(net, trained_alone(), 0.05)


def bfloat16(rank: Rank) -> None:
    """DDP of a model in bfloat16"""
    net = Ddp(nn.Linear(3, 1, bias=False).bfloat16())
    net(made(rank.number, 4, 3).bfloat16()).sum().backward()
    parts = [made(number, 4, 3).sum(0, keepdim=True) for number in rank.everyone]
    close(net.module.weight.grad.float(), torch.stack(parts).mean(0), 0.05)


def in_a_sub_group(rank: Rank) -> None:
    """DDP in a sub-group"""
    group: Any = dist.new_group([1, 2, 3])
    if rank.number:
        net = Ddp(nn.Linear(3, 1, bias=False), process_group=group)
        net(made(rank.number, 2, 3)).sum().backward()
        parts = [made(number, 2, 3).sum(0, keepdim=True) for number in (1, 2, 3)]
        close(net.module.weight.grad, torch.stack(parts).mean(0))


def two_models(rank: Rank) -> None:
    """Two DDP models on two groups, trained in turns"""
    nets = [Ddp(training.model(), process_group=dist.new_group()) for _ in range(2)]
    for net in nets:
        same_parameters(train(rank, net), trained_alone())


def compiled(rank: Rank) -> None:
    """DDP of a compiled model"""
    torch.compiler.reset()
    net: Any = torch.compile(Ddp(training.model()), backend="aot_eager")
    same_parameters(train(rank, net), trained_alone())


def same_bits(rank: Rank) -> None:
    """DDP: all ranks end with the same bits"""
    same_on_all_ranks(rank, train(rank, Ddp(training.model())))
