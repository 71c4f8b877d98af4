"""Calls on devices that are late at random are right, and one order of the product's that is left out is seen there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import start

pytestmark = [
    pytest.mark.gpu,
    emulated_devices.only_there,
]

LATE_US = [3000, 30_000]  # the second where a busy machine's loops are as late as the devices with the first
ROUNDS = 12
SLICES = 4
SLICE_BYTES = 64 << 10
ELEMENTS = SLICES * SLICE_BYTES // 4
# Slices of that size, two of which have room in staging.
FEW_SLICES = {"FAIRRING_SLICE_SIZE": str(SLICE_BYTES), "FAIRRING_TOTAL_MEMORY": str(4 * SLICE_BYTES)}
# One slice for each call, and no place in staging twice: so each call makes as many waits as the last one.
ONE_SLICE = {"FAIRRING_SLICE_SIZE": "1MiB", "FAIRRING_TOTAL_MEMORY": "64MiB"}
# One slice for each call, and one has room: each call but the first waits for the place of the one before.
NARROW = {"FAIRRING_SLICE_SIZE": "1MiB", "FAIRRING_TOTAL_MEMORY": str(2 * SLICES * SLICE_BYTES)}

Result = Callable[[int, int], tuple[torch.Tensor, float]]  # of a rank in a turn: what it saw, and the right number


def _sum_over_ranks(turn: int) -> float:
    return float(sum(rank + turn for rank in range(dist.get_world_size())))


def _late(elements: int, value: float) -> torch.Tensor:
    return torch.zeros(elements, device="cuda").add_(value)  # who reads before the addition reads zeros, or poison


def _seen(work: Any, result: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """What a stream that waits for the call reads. Then it overwrites the call's tensors."""
    work.wait()
    seen = result.clone()
    for tensor in (*others, result):
        tensor.fill_(-1.0)
    return seen


def _reduced(rank: int, turn: int) -> tuple[torch.Tensor, float]:
    tensor = _late(ELEMENTS, rank + turn)
    return _seen(dist.all_reduce(tensor, async_op=True), tensor), _sum_over_ranks(turn)


def _scattered(rank: int, turn: int) -> tuple[torch.Tensor, float]:
    whole = _late(ELEMENTS, rank + turn)
    part = _late(ELEMENTS // dist.get_world_size(), -2.0)
    return _seen(dist.reduce_scatter_tensor(part, whole, async_op=True), part, whole), _sum_over_ranks(turn)


def _gathered(_rank: int, turn: int) -> tuple[torch.Tensor, float]:
    whole = _late(ELEMENTS, -2.0)
    part = _late(ELEMENTS // dist.get_world_size(), turn)
    return _seen(dist.all_gather_into_tensor(whole, part, async_op=True), whole, part), float(turn)


def _told(rank: int, turn: int) -> tuple[torch.Tensor, float]:
    """Once the host knows that the call is complete, no stream need wait for it."""
    tensor = _late(ELEMENTS, rank + turn)
    work = dist.all_reduce(tensor, async_op=True)
    while not work.is_completed():
        os.sched_yield()
    return tensor.clone(), _sum_over_ranks(turn)


def _wrong_rounds(rank: int, result: Result) -> int:
    wrong = 0
    for turn in range(ROUNDS):
        seen, expected = result(rank, turn)
        wrong += not torch.equal(seen, torch.full_like(seen, expected))
    return wrong


def _wrong_among_many(rank: int, _: Result) -> int:
    """All calls but the first, which are under way together."""
    tensors = [_late(ELEMENTS, rank + turn) for turn in range(ROUNDS)]
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()
    expected = [torch.full_like(tensor, _sum_over_ranks(turn)) for turn, tensor in enumerate(tensors)]
    return sum(not torch.equal(*pair) for pair in list(zip(tensors, expected, strict=True))[1:])


def _play(result: Result, left_out: str, late_us: int, variables: Mapping[str, str]) -> int:
    """The number of wrong rounds."""
    late = {"EMULATED_CUDA_LATE_US": str(late_us), "EMULATED_CUDA_LATE_ONE_IN": "2"}
    ranks = start("2x1", environment={**late, **variables, "EMULATED_CUDA_OMIT": left_out})
    try:
        return sum(ranks.run(_wrong_among_many if variables is NARROW else _wrong_rounds, result))
    finally:
        ranks.kill()


@pytest.mark.parametrize(
    ("result", "variables"),
    [
        (_reduced, FEW_SLICES),
        (_scattered, FEW_SLICES),
        (_gathered, FEW_SLICES),
        (_reduced, ONE_SLICE),
        (_told, ONE_SLICE),
        (_reduced, NARROW),
    ],
)
def test_nothing_is_wrong_where_nothing_is_left_out(result: Result, variables: Mapping[str, str]) -> None:
    assert _play(result, "", LATE_US[0], variables) == 0


@pytest.mark.parametrize(
    ("result", "left_out", "variables"),
    [
        (_reduced, "stream_wait_event:libc10_cuda:0:1", FEW_SLICES),  # the caller's stream waits for the chains
        (_reduced, "wait_value:_core:1:3", FEW_SLICES),  # a gate, for what has to be summed
        (_scattered, "stream_wait_event:_core:0:1", FEW_SLICES),  # chains wait for the caller
        (_gathered, "write_value_order:_core:0:2", FEW_SLICES),  # the loop sends what has been copied out
        (_told, "write_value_order:_core:2:3", ONE_SLICE),  # the host knows of a call's end when that has come
    ],
)
def test_what_is_left_out_is_noticed(result: Result, left_out: str, variables: Mapping[str, str]) -> None:
    """So the test above can fail. tests/cpp leaves out every wait, gate and word of a chain, on a simulated device."""
    assert any(_play(result, left_out, late_us, variables) > 0 for late_us in LATE_US)
