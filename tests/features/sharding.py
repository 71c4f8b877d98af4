"""Sharded data parallelism: parameters, gradients and optimizer states in parts."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel as Ddp

from features import training
from features.rank import Rank, close
from features.training import same_on_all_ranks, same_parameters, train, trained_alone


def _sharded(mesh: Any, **settings: Any) -> Any:
    """Each layer is a unit, and what is left is another."""
    net = training.model()
    for layer in net:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh, **settings)
    fully_shard(net, mesh=mesh, **settings)
    return net


def fsdp2(rank: Rank) -> None:
    """FSDP2 (fully_shard)"""
    same_parameters(train(rank, _sharded(init_device_mesh("cpu", (rank.size,)))), trained_alone())


def fsdp2_kept_whole(rank: Rank) -> None:
    """FSDP2 with reshard_after_forward=False"""
    mesh = init_device_mesh("cpu", (rank.size,))
    same_parameters(train(rank, _sharded(mesh, reshard_after_forward=False)), trained_alone())


def fsdp2_kept_by_pairs(rank: Rank) -> None:
    """FSDP2 with reshard_after_forward=2: each pair of ranks keeps a copy"""
    mesh = init_device_mesh("cpu", (rank.size,))
    same_parameters(train(rank, _sharded(mesh, reshard_after_forward=2)), trained_alone())


def fsdp2_mixed_precision(rank: Rank) -> None:
    """FSDP2 with parameters in bfloat16 and gradients reduced in float32"""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    net = _sharded(init_device_mesh("cpu", (rank.size,)), mp_policy=policy)
    same_parameters(train(rank, net), trained_alone(), 5e-2)


def fsdp2_reduced_in_bfloat16(rank: Rank) -> None:
    """FSDP2 with parameters and gradients in bfloat16"""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, output_dtype=torch.float32)
    net = _sharded(init_device_mesh("cpu", (rank.size,)), mp_policy=policy)
    same_parameters(train(rank, net), trained_alone(), 5e-2)


def fsdp2_offloaded(rank: Rank) -> None:
    """FSDP2 with CPUOffloadPolicy"""
    net = _sharded(init_device_mesh("cpu", (rank.size,)), offload_policy=CPUOffloadPolicy(pin_memory=False))
    same_parameters(train(rank, net), trained_alone())


def fsdp2_accumulates(rank: Rank) -> None:
    """FSDP2 that sums gradients over two steps before it reduces them"""
    net, alone = _sharded(init_device_mesh("cpu", (rank.size,))), training.model()
    for step in range(2):
        net.set_requires_gradient_sync(step == 1)
        training.loss(net, *map(rank.part, training.batch(step))).backward()
        training.loss(alone, *training.batch(step)).backward()
    for mine, theirs in zip(net.parameters(), alone.parameters(), strict=True):
        close(mine.grad.full_tensor(), theirs.grad)


def fsdp2_clips(rank: Rank) -> None:
    """FSDP2: the norm of all gradients"""
    net, alone = _sharded(init_device_mesh("cpu", (rank.size,))), training.model()
    training.loss(net, *map(rank.part, training.batch(0))).backward()
    training.loss(alone, *training.batch(0)).backward()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    close(
        norm.full_tensor() if isinstance(norm, DTensor) else norm,
        torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.01),
    )


def hsdp(rank: Rank) -> None:
    """HSDP: FSDP2 on a 2D mesh, sharded inside machines and replicated between them"""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    same_parameters(train(rank, _sharded(mesh)), trained_alone())


def _fsdp1(strategy: ShardingStrategy, **settings: Any) -> Any:
    return FullyShardedDataParallel(
        training.model(), sharding_strategy=strategy, device_id=torch.device("cpu"), use_orig_params=True, **settings
    )


def _trains_as_fsdp1(rank: Rank, net: Any) -> None:
    train(rank, net)
    with FullyShardedDataParallel.summon_full_params(net):
        same_parameters(net, trained_alone())


def fsdp1(rank: Rank) -> None:
    """FSDP1: FULL_SHARD"""
    _trains_as_fsdp1(rank, _fsdp1(ShardingStrategy.FULL_SHARD))


def fsdp1_gradients_only(rank: Rank) -> None:
    """FSDP1: SHARD_GRAD_OP"""
    _trains_as_fsdp1(rank, _fsdp1(ShardingStrategy.SHARD_GRAD_OP))


def fsdp1_not_sharded(rank: Rank) -> None:
    """FSDP1: NO_SHARD"""
    _trains_as_fsdp1(rank, _fsdp1(ShardingStrategy.NO_SHARD))


def fsdp1_hybrid(rank: Rank) -> None:
    """FSDP1: HYBRID_SHARD on a 2D mesh"""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    _trains_as_fsdp1(rank, _fsdp1(ShardingStrategy.HYBRID_SHARD, device_mesh=mesh))


def zero(rank: Rank) -> None:
    """ZeroRedundancyOptimizer under DDP"""
    net = Ddp(training.model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    same_parameters(train(rank, net, optimizer), trained_alone())


def zero_with_buckets(rank: Rank) -> None:
    """ZeroRedundancyOptimizer with parameters as bucket views, and its whole state on one rank"""
    net = Ddp(training.model())
    optimizer = ZeroRedundancyOptimizer(
        net.parameters(), torch.optim.SGD, parameters_as_bucket_view=True, lr=0.1, momentum=0.9
    )
    same_parameters(train(rank, net, optimizer), trained_alone())
    optimizer.consolidate_state_dict(to=0)
    if rank.number == 0:
        assert len(optimizer.state_dict()["state"]) == len(list(net.parameters()))


def zero_with_uneven_inputs(rank: Rank) -> None:
    """Join of DDP and ZeroRedundancyOptimizer with uneven inputs"""
    net = Ddp(training.model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1)
    with Join([net, optimizer]):
        for step in range(2 + rank.number):
            optimizer.zero_grad()
            training.loss(net, *map(rank.part, training.batch(step))).backward()
            optimizer.step()
    same_on_all_ranks(rank, net)
