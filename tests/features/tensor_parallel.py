"""DTensor, tensor parallelism and context parallelism, against plain tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from features import training
from features.rank import Rank, close, made, same
from features.training import same_parameters


def _mesh(rank: Rank) -> DeviceMesh:
    return init_device_mesh("cpu", (rank.size,))


def distributed_tensors(rank: Rank) -> None:
    """DTensor: distribute_tensor and full_tensor, also of uneven shards"""
    for rows in (8, 7, 3):
        tensor = distribute_tensor(made(0, rows, 6), _mesh(rank), [Shard(0)])
        same(tensor.full_tensor(), made(0, rows, 6))


def redistributed(rank: Rank) -> None:
    """DTensor: redistribute between Shard, Replicate, Partial"""
    mesh, whole = _mesh(rank), made(0, 8, 12)
    tensor = distribute_tensor(whole, mesh, [Shard(0)])
    same(tensor.redistribute(mesh, [Replicate()]).to_local(), whole)
    same(tensor.redistribute(mesh, [Shard(1)]).to_local(), whole.chunk(rank.size, 1)[rank.number])
    partial = DTensor.from_local(made(rank.number, 8, 12), mesh, [Partial()])
    total = torch.stack([made(number, 8, 12) for number in rank.everyone]).sum(0)
    same(partial.redistribute(mesh, [Replicate()]).to_local(), total)
    same(partial.redistribute(mesh, [Shard(0)]).to_local(), rank.part(total))
    mean = DTensor.from_local(made(rank.number, 8, 12), mesh, [Partial("avg")])
    close(mean.full_tensor(), total / rank.size)


def redistributed_unevenly(rank: Rank) -> None:
    """DTensor: redistribute uneven shards from one dimension to the other"""
    mesh, whole = _mesh(rank), made(0, 7, 5)
    tensor = distribute_tensor(whole, mesh, [Shard(0)]).redistribute(mesh, [Shard(1)])
    same(tensor.full_tensor(), whole)
    same(tensor.redistribute(mesh, [Replicate()]).to_local(), whole)


def redistributed_on_two_dimensions(rank: Rank) -> None:
    """DTensor on a 2D mesh"""
    mesh, whole = init_device_mesh("cpu", (2, 2)), made(0, 8, 12)
    tensor = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    same(tensor.to_local(), whole.chunk(2)[rank.number // 2].chunk(2, 1)[rank.number % 2])
    same(tensor.redistribute(mesh, [Replicate(), Shard(0)]).to_local(), whole.chunk(2)[rank.number % 2])
    same(tensor.full_tensor(), whole)


def products(rank: Rank) -> None:
    """DTensor: products, sums and norms of sharded tensors"""
    mesh = _mesh(rank)
    left, right = made(0, 8, 12), made(1, 12, 4)
    product: Any = distribute_tensor(left, mesh, [Shard(1)]) @ distribute_tensor(right, mesh, [Shard(0)])
    same(product.full_tensor(), left @ right)
    sharded: Any = distribute_tensor(left, mesh, [Shard(0)])
    same(sharded.sum().full_tensor(), left.sum())
    same(sharded.amax().full_tensor(), left.amax())
    close(torch.linalg.vector_norm(sharded).full_tensor(), torch.linalg.vector_norm(left))


def distributed_module(rank: Rank) -> None:
    """distribute_module, with gradients"""
    net: Any = distribute_module(nn.Linear(6, 3, bias=False), _mesh(rank))
    with torch.no_grad():
        net.weight.copy_(distribute_tensor(made(0, 3, 6), _mesh(rank), [Replicate()]))
    inputs = distribute_tensor(made(1, 8, 6), _mesh(rank), [Shard(0)])
    net(inputs).sum().backward()
    same(net.weight.grad.full_tensor(), made(1, 8, 6).sum(0).expand(3, 6))


def _parallel(mesh: DeviceMesh) -> nn.Module:
    """The first layer by columns, the second by rows, the last one replicated."""
    return parallelize_module(training.model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def _trains_alike(net: nn.Module, alone: nn.Module) -> None:
    """On whole batches: the ranks share the work on each."""
    for each in (net, alone):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1, foreach=False)
        for step in range(training.STEPS):
            optimizer.zero_grad()
            training.loss(each, *training.batch(step)).backward()
            optimizer.step()
    same_parameters(net, alone)


def columns_and_rows(rank: Rank) -> None:
    """Tensor parallel: ColwiseParallel and RowwiseParallel"""
    _trains_alike(_parallel(_mesh(rank)), training.model())


def _normed() -> nn.Module:
    return nn.Sequential(
        training.model(), nn.LayerNorm(training.OUTPUTS), nn.Linear(training.OUTPUTS, training.OUTPUTS)
    )


def sequence_parallel(rank: Rank) -> None:
    """Tensor parallel: SequenceParallel"""
    torch.manual_seed(2)
    whole: Any = _normed()
    net: Any = parallelize_module(
        training.copied(whole),
        _mesh(rank),
        {
            "0.0": ColwiseParallel(),
            "0.2": RowwiseParallel(output_layouts=Shard(1), use_local_output=True),
        },
    )
    inputs = made(0, 2, 8, training.INPUTS)
    first = net[0][2](net[0][1](net[0][0](inputs)))
    expected = whole[0][2](whole[0][1](whole[0][0](inputs)))
    close(first, expected.chunk(rank.size, 1)[rank.number])
    norm = parallelize_module(nn.LayerNorm(8), _mesh(rank), SequenceParallel())
    close(norm(first).full_tensor(), nn.LayerNorm(8)(expected))


def prepared_inputs(rank: Rank) -> None:
    """Tensor parallel: PrepareModuleInput gathers what arrives in parts"""
    layer = nn.Linear(6, 3)
    expected = layer(made(0, 8, 6))
    plan = PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate(), use_local_output=True)
    close(parallelize_module(layer, _mesh(rank), plan)(rank.part(made(0, 8, 6))), expected)


def parallel_loss(rank: Rank) -> None:
    """Tensor parallel: loss_parallel"""
    logits, targets = made(0, 6, 8), torch.arange(6) % 8
    sharded: Any = distribute_tensor(logits, _mesh(rank), [Shard(1)]).requires_grad_()
    with loss_parallel():
        value: Any = nn.functional.cross_entropy(sharded, targets)
        value.backward()
    plain = logits.clone().requires_grad_()
    expected = nn.functional.cross_entropy(plain, targets)
    expected.backward()
    close(value.full_tensor(), expected.detach())
    close(sharded.grad.full_tensor(), plain.grad)


def with_sharded_data(rank: Rank) -> None:
    """Tensor parallel with FSDP2 on a 2D mesh"""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    net: Any = _parallel(mesh["tensor"])
    fully_shard(net, mesh=mesh["data"])
    alone = training.model()
    optimizer, plain = (
        torch.optim.SGD(net.parameters(), lr=0.1, foreach=False),
        torch.optim.SGD(alone.parameters(), lr=0.1),
    )
    for step in range(training.STEPS):
        inputs, targets = training.batch(step)
        half = rank.number // 2
        optimizer.zero_grad()
        training.loss(net, inputs.chunk(2)[half], targets.chunk(2)[half]).backward()
        optimizer.step()
        plain.zero_grad()
        training.loss(alone, inputs, targets).backward()
        plain.step()
    same_parameters(net, alone)


def context_parallelism(rank: Rank) -> None:
    """Context parallel attention"""
    torch.manual_seed(3)
    query, key, value = (torch.randn(2, 2, 16, 8) for _ in range(3))
    expected = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    buffers = [query.clone(), key.clone(), value.clone()]
    whole = expected.clone()
    with context_parallel(_mesh(rank), buffers=[*buffers, whole], buffer_seq_dims=[2, 2, 2, 2]):
        attend: Any = nn.functional.scaled_dot_product_attention
        result = attend(*buffers, is_causal=True)
        close(result, whole)
