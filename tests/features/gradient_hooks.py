"""DDP's communication hooks, and averages of models instead of gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms._comm_hooks import default_hooks as state_hooks
from torch.distributed.algorithms.ddp_comm_hooks import (
    DDPCommHookType,
    ddp_zero_hook,
    debugging_hooks,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
    register_ddp_comm_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as Ddp

from features import training
from features.rank import Rank, close
from features.training import same_on_all_ranks, same_parameters, train, trained_alone


def _trained_with(rank: Rank, hook: Any, state: Any = None) -> Ddp:
    net = Ddp(training.model(), bucket_cap_mb=1e-3)
    net.register_comm_hook(state, hook)
    train(rank, net)
    return net


def all_reduce_hook(rank: Rank) -> None:
    """allreduce_hook"""
    same_parameters(_trained_with(rank, default_hooks.allreduce_hook), trained_alone())


def fp16_hook(rank: Rank) -> None:
    """fp16_compress_hook"""
    same_parameters(_trained_with(rank, default_hooks.fp16_compress_hook), trained_alone(), 1e-2)


def bf16_hook(rank: Rank) -> None:
    """bf16_compress_hook"""
    same_parameters(_trained_with(rank, default_hooks.bf16_compress_hook), trained_alone(), 5e-2)


def wrapped_hook(rank: Rank) -> None:
    """bf16_compress_wrapper around allreduce_hook"""
    hook = default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook)
    same_parameters(_trained_with(rank, hook), trained_alone(), 5e-2)


def own_hook(rank: Rank) -> None:
    """A hook of one's own that chains an all_reduce and a callback"""

    def hook(_, bucket):  # DDP does not take annotations that are strings
        work: Any = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0] / rank.size)

    same_parameters(_trained_with(rank, hook), trained_alone())


def built_in_hooks(rank: Rank) -> None:
    """Hooks in C++: ALLREDUCE and FP16_COMPRESS"""
    for kind, tolerance in ((dist.BuiltinCommHookType.ALLREDUCE, 1e-5), (dist.BuiltinCommHookType.FP16_COMPRESS, 1e-2)):
        net = Ddp(training.model())
        net._register_builtin_comm_hook(kind)
        same_parameters(train(rank, net), trained_alone(), tolerance)


def hook_by_type(rank: Rank) -> None:
    """register_ddp_comm_hook"""
    net = Ddp(training.model())
    register_ddp_comm_hook(DDPCommHookType.ALLREDUCE, net)
    same_parameters(train(rank, net), trained_alone())


def power_sgd(rank: Rank) -> None:
    """PowerSGD with full rank, which compresses nothing away"""
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=16, start_powerSGD_iter=2, min_compression_rate=0.1, use_error_feedback=True
    )
    same_parameters(_trained_with(rank, powerSGD_hook.powerSGD_hook, state), trained_alone(), 1e-3)


def batched_power_sgd(rank: Rank) -> None:
    """Batched PowerSGD trains with the same result on all ranks"""
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    same_on_all_ranks(rank, _trained_with(rank, powerSGD_hook.batched_powerSGD_hook, state))


def quantized_hook(rank: Rank) -> None:
    """quantization_pertensor_hook, an all_gather of bytes"""
    net = Ddp(training.model())
    net.register_comm_hook(None, quantization_hooks.quantization_pertensor_hook)
    same_parameters(train(rank, net), trained_alone(), 0.2)


def no_hook(rank: Rank) -> None:
    """noop_hook leaves gradients alone"""
    net, alone = Ddp(training.model()), training.model()
    net.register_comm_hook(None, debugging_hooks.noop_hook)
    inputs, targets = map(rank.part, training.batch(0))
    training.loss(net, inputs, targets).backward()
    training.loss(alone, inputs, targets).backward()
    for mine, theirs in zip(net.parameters(), alone.parameters(), strict=True):
        close(mine.grad, theirs.grad)


def post_local_sgd(rank: Rank) -> None:
    """Post-local SGD: sums inside the sub-group, averages of models among all"""
    group, _ = dist.new_subgroups(2)
    net = Ddp(training.model())
    state = post_localSGD_hook.PostLocalSGDState(None, group, start_localSGD_iter=100)
    net.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(training.sgd(net), PeriodicModelAverager(period=1, warmup_steps=100))
    same_parameters(train(rank, net, optimizer), trained_alone())  # all of it is before local SGD begins


def local_steps(rank: Rank) -> None:
    """Post-local SGD once it is local: averages of the models that pairs of ranks have made"""
    group, _ = dist.new_subgroups(2)
    net = Ddp(training.model())
    net.register_comm_hook(
        post_localSGD_hook.PostLocalSGDState(None, group, start_localSGD_iter=0), post_localSGD_hook.post_localSGD_hook
    )
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), PeriodicModelAverager(period=1))
    same_parameters(train(rank, net, optimizer), trained_alone(make=_plain_sgd))  # each step's average is linear


def _plain_sgd(net: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1)


def periodic_averages(rank: Rank) -> None:
    """Periodic model averaging without DDP"""
    net = training.model()
    averager = PeriodicModelAverager(period=1)
    optimizer = _plain_sgd(net)
    for step in range(training.STEPS):
        optimizer.zero_grad()
        training.loss(net, *map(rank.part, training.batch(step))).backward()
        optimizer.step()
        averager.average_parameters(net.parameters())
    same_parameters(net, trained_alone(make=_plain_sgd))


def hierarchical_averages(rank: Rank) -> None:
    """Hierarchical model averaging: inside machines, then among all"""
    net = training.model()
    averager = HierarchicalModelAverager(period_group_size_dict={2: 2, 4: 4}, warmup_steps=0)
    for step in range(5):
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.fill_(float(rank.number + step))
                parameter.grad = torch.zeros_like(parameter)  # only what has a gradient is averaged
        averager.average_parameters(net.parameters())
    # Step 4 is a multiple of both periods: the average of all ranks' values.
    expected = sum(rank.everyone) / rank.size + 4
    for parameter in net.parameters():
        close(parameter.detach(), torch.full_like(parameter, expected))


def zero_step_in_the_hook(rank: Rank) -> None:
    """hook_with_zero_step: the optimizer's steps overlap with DDP"""
    net = Ddp(training.model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1)
    net.register_comm_hook(None, ddp_zero_hook.hook_with_zero_step(default_hooks.allreduce_hook, net, optimizer))
    before = training.loss(training.model(), *training.batch(0))
    for _ in range(2 + training.STEPS):  # the first steps find out in what order gradients come
        net.zero_grad()
        training.loss(net, *map(rank.part, training.batch(0))).backward()
    assert training.loss(net.module, *training.batch(0)) < before
    same_on_all_ranks(rank, net)


def hooks_of_sharded_models(rank: Rank) -> None:
    """The hooks of sharded models: all_reduce and reduce_scatter of gradients"""
    group: Any = dist.group.WORLD
    state = state_hooks.DefaultState(group)
    gradient = torch.full((8,), float(rank.number))
    state_hooks.allreduce_hook(state, gradient)
    close(gradient, torch.full((8,), sum(rank.everyone) / rank.size))
    output = torch.empty(2)
    state_hooks.reduce_scatter_hook(state, torch.full((8,), float(rank.number)), output)
    close(output, torch.full((2,), sum(rank.everyone) / rank.size))
