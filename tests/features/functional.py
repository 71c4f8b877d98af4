"""Functional collectives, compiled ones, and torch.distributed.nn, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as with_gradients

from features.rank import Rank, all_made, made, same


def _sum(rank: Rank, *shape: int) -> torch.Tensor:
    return torch.stack(all_made(rank.size, *shape)).sum(0)


def _group() -> Any:
    return dist.group.WORLD


def functional_all_reduce(rank: Rank) -> None:
    """Functional all_reduce: sum, avg, max"""
    same(functional.all_reduce(made(rank.number, 6), "sum", _group()), _sum(rank, 6))
    same(functional.all_reduce(4 * made(rank.number, 6), "avg", _group()), _sum(rank, 6))
    same(functional.all_reduce(made(rank.number, 6), "max", _group()), torch.stack(all_made(rank.size, 6)).amax(0))


def functional_all_gather(rank: Rank) -> None:
    """Functional all_gather_tensor along each dimension"""
    for dimension in (0, 1):
        gathered = functional.all_gather_tensor(made(rank.number, 4, 6), dimension, _group())
        same(functional.wait_tensor(gathered), torch.cat(all_made(rank.size, 4, 6), dimension))


def functional_reduce_scatter(rank: Rank) -> None:
    """Functional reduce_scatter_tensor along each dimension"""
    for dimension in (0, 1):
        scattered: Any = functional.reduce_scatter_tensor(made(rank.number, 4, 8), "sum", dimension, _group())
        same(scattered.wait(), _sum(rank, 4, 8).chunk(rank.size, dimension)[rank.number])


def functional_broadcast(rank: Rank) -> None:
    """Functional broadcast"""
    broadcast: Any = functional.broadcast(made(rank.number, 6), 2, _group())
    same(broadcast.wait(), made(2, 6))


def functional_all_to_all(rank: Rank) -> None:
    """Functional all_to_all_single, unequal parts, and permute_tensor"""
    sent = [1 + to for to in rank.everyone]
    received = [1 + rank.number] * rank.size
    exchanged: Any = functional.all_to_all_single(made(rank.number, sum(sent)), received, sent, _group())
    same(exchanged.wait(), torch.cat([made(n, sum(sent)).split(sent)[rank.number] for n in rank.everyone]))
    permuted: Any = functional.permute_tensor(made(rank.number, 6), [1, 2, 3, 0], _group())
    same(permuted.wait(), made(rank.previous, 6))


def functional_coalesced(rank: Rank) -> None:
    """Functional coalesced collectives"""
    tensors = [made(rank.number, 8), made(rank.number, 4, 3)]
    sums = [_sum(rank, 8), _sum(rank, 4, 3)]
    same(_waited(functional.all_reduce_coalesced(tensors, "sum", _group())), sums)
    gathered = _waited(functional.all_gather_into_tensor_coalesced(tensors, _group()))
    same(gathered, [torch.cat(all_made(rank.size, 8)), torch.cat(all_made(rank.size, 4, 3))])
    scattered = _waited(functional.reduce_scatter_tensor_coalesced(tensors, "sum", [0, 0], _group()))
    same(scattered, [rank.part(total) for total in sums])


def _waited(tensors: Any) -> list[torch.Tensor]:
    return [functional.wait_tensor(tensor) for tensor in tensors]


def functional_with_gradients(rank: Rank) -> None:
    """Functional collectives with gradients: all_gather, reduce_scatter, all_to_all"""
    tensor = made(rank.number, 4, 3).requires_grad_()
    functional.all_gather_tensor_autograd(tensor, 0, _group()).sum().backward()
    same(tensor.grad, torch.full((4, 3), float(rank.size)))
    tensor = made(rank.number, 8, 3).requires_grad_()
    functional.reduce_scatter_tensor_autograd(tensor, "sum", 0, _group()).sum().backward()
    same(tensor.grad, torch.ones(8, 3))
    tensor = made(rank.number, 8).requires_grad_()
    halves = [2] * rank.size
    (functional.all_to_all_single_autograd(tensor, halves, halves, _group()) * rank.number).sum().backward()
    same(tensor.grad, torch.arange(rank.size).repeat_interleave(2).float())


def _compiled(function: Callable[..., Any], backend: str, *arguments: Any) -> Any:
    torch.compiler.reset()
    step: Any = torch.compile(function, backend=backend, fullgraph=True)
    return step(*arguments)


def compiled_functional(rank: Rank) -> None:
    """torch.compile (aot_eager) of functional collectives"""

    def step(tensor: torch.Tensor) -> torch.Tensor:
        total = functional.all_reduce(tensor * 2, "sum", _group())
        return functional.all_gather_tensor(total + 1, 0, _group())

    expected = (_sum(rank, 6) * 2 + 1).repeat(rank.size)
    same(_compiled(step, "aot_eager", made(rank.number, 6)), expected)


def compiled_in_place(rank: Rank) -> None:
    """torch.compile (aot_eager) of all_reduce, all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single"""

    def step(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = tensor.clone()
        dist.all_reduce(total)
        gathered = tensor.new_empty(tensor.numel() * 4)
        dist.all_gather_into_tensor(gathered, tensor)
        scattered = tensor.new_empty(tensor.numel() // 4)
        dist.reduce_scatter_tensor(scattered, tensor)
        exchanged = torch.empty_like(tensor)
        dist.all_to_all_single(exchanged, tensor)
        return total, gathered, scattered, exchanged

    total, gathered, scattered, exchanged = _compiled(step, "aot_eager", made(rank.number, 8))
    same(total, _sum(rank, 8))
    same(gathered, torch.cat(all_made(rank.size, 8)))
    same(scattered, rank.part(_sum(rank, 8)))
    same(exchanged, torch.cat([made(number, 8).chunk(rank.size)[rank.number] for number in rank.everyone]))


def compiled_by_inductor(rank: Rank) -> None:
    """torch.compile (inductor) of an all_reduce"""

    def step(tensor: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = functional.wait_tensor(functional.all_reduce(tensor, "sum", _group()))
        return total

    same(_compiled(step, "inductor", made(rank.number, 6)), _sum(rank, 6))


def all_reduce_with_gradients(rank: Rank) -> None:
    """torch.distributed.nn: all_reduce and broadcast, with gradients"""
    tensor = made(rank.number, 5).requires_grad_()
    (with_gradients.all_reduce(tensor) * (rank.number + 1)).sum().backward()
    same(tensor.grad, torch.full((5,), 10.0))
    tensor = made(rank.number, 5).requires_grad_()
    with_gradients.broadcast(tensor, 1).sum().backward()
    same(tensor.grad, torch.full((5,), 4.0 if rank.number == 1 else 0.0))


def gather_with_gradients(rank: Rank) -> None:
    """torch.distributed.nn: all_gather, gather, reduce, with gradients"""
    tensor = made(rank.number, 5).requires_grad_()
    gathered = with_gradients.all_gather(tensor)
    same([each.detach() for each in gathered], all_made(rank.size, 5))
    torch.stack(gathered).sum().backward()
    same(tensor.grad, torch.full((5,), 4.0))
    tensor = made(rank.number, 5).requires_grad_()
    outputs = with_gradients.gather(tensor, 1)
    torch.stack(list(outputs)).sum().backward()
    total = with_gradients.reduce(made(rank.number, 5), 2)
    if rank.number == 2:
        same(total, _sum(rank, 5))


def all_to_all_with_gradients(rank: Rank) -> None:
    """torch.distributed.nn: all_to_all with lists, with gradients"""
    inputs = [made(rank.number * rank.size + to, 3).requires_grad_() for to in rank.everyone]
    outputs = with_gradients.all_to_all([torch.empty(3) for _ in rank.everyone], inputs)
    same([each.detach() for each in outputs], [made(n * rank.size + rank.number, 3) for n in rank.everyone])
    (torch.stack(list(outputs)) * rank.number).sum().backward()
    for to, tensor in enumerate(inputs):
        same(tensor.grad, torch.full((3,), float(to)))


def all_to_all_single_with_gradients(rank: Rank) -> None:
    """torch.distributed.nn: all_to_all_single, with gradients"""
    tensor = made(rank.number, 8).requires_grad_()
    output = with_gradients.all_to_all_single(torch.empty(8), tensor)
    (output * rank.number).sum().backward()
    same(tensor.grad, torch.arange(rank.size).repeat_interleave(2).float())


def reduce_scatter_with_gradients(rank: Rank) -> None:
    """torch.distributed.nn: reduce_scatter, with gradients"""
    inputs = [made(rank.number * rank.size + to, 3).requires_grad_() for to in rank.everyone]
    output = with_gradients.reduce_scatter(torch.empty(3), inputs)
    same(output.detach(), torch.stack([made(n * rank.size + rank.number, 3) for n in rank.everyone]).sum(0))
    (output * rank.number).sum().backward()
    for to, tensor in enumerate(inputs):
        same(tensor.grad, torch.full((3,), float(to)))
