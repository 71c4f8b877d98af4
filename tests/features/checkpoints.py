"""Distributed checkpoints."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel as Ddp

from features import training
from features.rank import Rank, made, same
from features.training import same_parameters, train, trained_alone


def saved_and_loaded(rank: Rank) -> None:
    """DCP: save and load of plain tensors"""
    dcp.save({"weight": made(3, 5, 6)}, checkpoint_id=rank.folder("plain"))
    state = {"weight": torch.zeros(5, 6)}
    dcp.load(state, checkpoint_id=rank.folder("plain"))
    same(state["weight"], made(3, 5, 6))


def sharded(rank: Rank) -> None:
    """DCP: save sharded, load sharded along another dimension"""
    mesh = init_device_mesh("cpu", (rank.size,))
    dcp.save({"weight": distribute_tensor(made(3, 8, 12), mesh, [Shard(0)])}, checkpoint_id=rank.folder("sharded"))
    for placement in (Shard(1), Replicate()):
        state: dict[str, Any] = {"weight": distribute_tensor(torch.zeros(8, 12), mesh, [placement])}
        dcp.load(state, checkpoint_id=rank.folder("sharded"))
        same(state["weight"].full_tensor(), made(3, 8, 12))


def in_the_background(rank: Rank) -> None:
    """DCP: async_save, on a group of its own"""
    group: Any = dist.new_group(backend="cpu:" + rank.backend)
    state = {"weight": made(3, 5, 6)}
    saving: Any = dcp.async_save(state, checkpoint_id=rank.folder("background"), process_group=group)
    dist.all_reduce(torch.ones(rank.size))  # meanwhile
    saving.result()
    state["weight"].zero_()
    dcp.load(state, checkpoint_id=rank.folder("background"))
    same(state["weight"], made(3, 5, 6))


def of_a_sharded_training(rank: Rank) -> None:
    """DCP: FSDP2's model and optimizer, loaded again"""
    mesh = init_device_mesh("cpu", (rank.size,))
    net: Any = fully_shard(training.model(), mesh=mesh)
    optimizer = training.sgd(net)
    train(rank, net, optimizer)
    dcp.save(_state(net, optimizer), checkpoint_id=rank.folder("training"))
    other: Any = fully_shard(training.model(), mesh=mesh)
    its_optimizer = training.sgd(other)
    state = _state(other, its_optimizer)
    dcp.load(state, checkpoint_id=rank.folder("training"))
    set_state_dict(other, its_optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    same_parameters(other, trained_alone())
    assert its_optimizer.state


def _state(net: Any, optimizer: Any) -> dict[str, Any]:
    model, rest = get_state_dict(net, optimizer)
    return {"model": model, "optimizer": rest}


def whole_on_rank_0(rank: Rank) -> None:
    """The whole state of a sharded model on rank 0, broadcast from there into another"""
    mesh = init_device_mesh("cpu", (rank.size,))
    net: Any = fully_shard(training.model(), mesh=mesh)
    train(rank, net)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state, _ = get_state_dict(net, [], options=options)
    if rank.number == 0:
        whole = training.model()
        whole.load_state_dict(state)
        same_parameters(whole, trained_alone())
    other: Any = fully_shard(training.model(), mesh=mesh)
    spread = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(other, state, options=spread)
    same_parameters(other, trained_alone())


def of_ddp(rank: Rank) -> None:
    """DCP: DDP's model"""
    net = Ddp(training.model())
    train(rank, net)
    state: Any
    state, _ = get_state_dict(net, [])
    dcp.save(state, checkpoint_id=rank.folder("ddp"))
    loaded = {name: torch.zeros_like(value) for name, value in state.items()}
    dcp.load(loaded, checkpoint_id=rank.folder("ddp"))
    whole = training.model()
    whole.load_state_dict(loaded)
    same_parameters(whole, trained_alone())
