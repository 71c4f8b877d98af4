"""Calls that move tensors: every dtype, shape and layout arrives as it was sent, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

DTYPES = [
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.bool, torch.complex64, torch.complex128),
]
SHAPES: list[tuple[int, ...]] = [(4,), (2, 3), (0,), (3, 0), (1, 1, 5)]

Tensors = list[torch.Tensor]
Make = Callable[[tuple[int, ...], int], torch.Tensor]
Empty = Callable[[tuple[int, ...]], torch.Tensor]


def _filled(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Bytes at random, of which every dtype but bool has a value."""
    elements = torch.empty(shape, dtype=dtype).nbytes
    raw = torch.randint(
        0, 2 if dtype == torch.bool else 256, (elements,), generator=torch.Generator().manual_seed(seed)
    )
    return raw.to(torch.uint8).view(dtype).reshape(shape)


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements, with a gap after each."""
    wide = torch.stack([tensor, tensor], dim=-1)
    return wide[..., 0]


def _bits(tensor: torch.Tensor) -> list[int]:
    return tensor.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8).tolist()


def _group() -> Any:
    return dist.group.WORLD


def _broadcast(rank: int, size: int, shape: tuple[int, ...], make: Make, empty: Empty) -> list[tuple[Any, Any]]:
    tensors = [make(shape, root) if rank == root else empty(shape) for root in range(size)]
    for root, tensor in enumerate(tensors):
        dist.broadcast(tensor, src=root)
    return [(tensor, make(shape, root)) for root, tensor in enumerate(tensors)]


def _all_gather(rank: int, size: int, shape: tuple[int, ...], make: Make, empty: Empty) -> list[tuple[Any, Any]]:
    outputs = [empty(shape) for _ in range(size)]
    dist.all_gather(outputs, make(shape, rank))
    return [(output, make(shape, other)) for other, output in enumerate(outputs)]


def _all_gather_uneven(rank: int, size: int, shape: tuple[int, ...], make: Make, empty: Empty) -> list[tuple[Any, Any]]:
    outputs = [empty((number, *shape)) for number in range(size)]
    dist.all_gather(outputs, make((rank, *shape), rank))
    return [(output, make((other, *shape), other)) for other, output in enumerate(outputs)]


def _all_gather_tensor(rank: int, size: int, shape: tuple[int, ...], make: Make, empty: Empty) -> list[tuple[Any, Any]]:
    concatenated, stacked = empty((size * shape[0], *shape[1:])), empty((size, *shape))
    dist.all_gather_into_tensor(concatenated, make(shape, rank))
    dist.all_gather_into_tensor(stacked, make(shape, rank))
    parts = [make(shape, other) for other in range(size)]
    return [(concatenated, torch.cat(parts)), (stacked, torch.stack(parts))]


def _all_gather_several(
    rank: int, size: int, shape: tuple[int, ...], make: Make, empty: Empty
) -> list[tuple[Any, Any]]:
    outputs = [[empty(shape), empty((3,))] for _ in range(size)]
    _group().allgather_coalesced(outputs, [make(shape, rank), make((3,), rank)]).wait()
    tensors = [empty((size * shape[0], *shape[1:])), empty((size, 3))]
    _group().allgather_into_tensor_coalesced(tensors, [make(shape, rank), make((3,), rank)]).wait()
    parts = [[make(shape, other), make((3,), other)] for other in range(size)]
    gathered = [
        (ours, part)
        for row, parts_of_rank in zip(outputs, parts, strict=True)
        for ours, part in zip(row, parts_of_rank, strict=True)
    ]
    return [
        *gathered,
        (tensors[0], torch.cat([part for part, _ in parts])),
        (tensors[1], torch.stack([part for _, part in parts])),
    ]


def _gather(rank: int, size: int, shape: tuple[int, ...], make: Make, empty: Empty) -> list[tuple[Any, Any]]:
    outputs = [empty(shape) for _ in range(size)] if rank == 1 else None
    dist.gather(make(shape, rank), outputs, dst=1)
    return [(output, make(shape, other)) for other, output in enumerate(outputs or [])]


def _scatter(rank: int, size: int, shape: tuple[int, ...], make: Make, empty: Empty) -> list[tuple[Any, Any]]:
    output = empty(shape)
    dist.scatter(output, [make(shape, other) for other in range(size)] if rank == 1 else None, src=1)
    return [(output, make(shape, rank))]


def _all_to_all(rank: int, size: int, shape: tuple[int, ...], make: Make, empty: Empty) -> list[tuple[Any, Any]]:
    outputs = [empty(shape) for _ in range(size)]
    dist.all_to_all(outputs, [make(shape, size * rank + other) for other in range(size)])
    return [(output, make(shape, size * other + rank)) for other, output in enumerate(outputs)]


def _all_to_all_uneven(rank: int, size: int, shape: tuple[int, ...], make: Make, empty: Empty) -> list[tuple[Any, Any]]:
    outputs = [empty((other * rank, *shape)) for other in range(size)]
    dist.all_to_all(outputs, [make((other * rank, *shape), size * rank + other) for other in range(size)])
    return [(output, make((other * rank, *shape), size * other + rank)) for other, output in enumerate(outputs)]


def _all_to_all_single(rank: int, size: int, shape: tuple[int, ...], make: Make, empty: Empty) -> list[tuple[Any, Any]]:
    parts = [[make(shape, size * source + target) for target in range(size)] for source in range(size)]
    output = empty((size * shape[0], *shape[1:]))
    dist.all_to_all_single(output, torch.cat(parts[rank]))
    return [(output, torch.cat([parts[source][rank] for source in range(size)]))]


def _all_to_all_splits(rank: int, size: int, shape: tuple[int, ...], make: Make, empty: Empty) -> list[tuple[Any, Any]]:
    rows = [[(source + 2 * target) % 3 for target in range(size)] for source in range(size)]
    parts = [[make((rows[s][t], *shape), size * s + t) for t in range(size)] for s in range(size)]
    received = [rows[source][rank] for source in range(size)]
    output = empty((sum(received), *shape))
    dist.all_to_all_single(output, torch.cat(parts[rank]), received, rows[rank])
    return [(output, torch.cat([parts[source][rank] for source in range(size)]))]


_CALLS: dict[str, Callable[..., list[tuple[Any, Any]]]] = {
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather of unequal shapes": _all_gather_uneven,
    "all_gather_into_tensor": _all_gather_tensor,
    "all_gather of several tensors": _all_gather_several,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "all_to_all of unequal shapes": _all_to_all_uneven,
    "all_to_all_single": _all_to_all_single,
    "all_to_all_single with unequal splits": _all_to_all_splits,
}


def _moves(rank: int, name: str, dtypes: list[torch.dtype]) -> None:
    size = dist.get_world_size()
    for dtype in dtypes:
        for shape in SHAPES:
            for spread in (False, True):
                lay = _spread if spread else torch.Tensor.contiguous
                pairs = _CALLS[name](
                    rank,
                    size,
                    shape,
                    lambda shape, seed, dtype=dtype, lay=lay: lay(_filled(shape, dtype, seed)),
                    lambda shape, dtype=dtype, lay=lay: lay(_filled(shape, dtype, 99)),
                )
                for ours, expected in pairs:
                    assert _bits(ours) == _bits(expected), (name, dtype, shape, spread, ours, expected)


@pytest.mark.parametrize("name", _CALLS)
def test_what_arrives_is_what_was_sent(three: Ranks, name: str) -> None:
    three.run(_moves, name, DTYPES)


def _start(name: str, rank: int, size: int, value: float) -> tuple[Any, list[Any]]:
    """The Work of a call, and the outputs as its future has them."""
    tensor, parts = torch.full((2, 2), value).t(), [torch.zeros(2, 2).t() for _ in range(size)]
    if name == "broadcast":
        return dist.broadcast(tensor, src=0, async_op=True), [tensor]
    if name == "all_gather":
        return dist.all_gather(parts, tensor, async_op=True), parts
    if name == "all_gather_into_tensor":
        output = torch.empty(size, 2, 2)
        return dist.all_gather_into_tensor(output, tensor, async_op=True), [output]
    if name == "allgather_coalesced":
        return _group().allgather_coalesced([parts, parts, parts], [tensor] * 3), [parts, parts, parts]
    if name == "gather":
        return dist.gather(tensor, parts if rank == 0 else None, dst=0, async_op=True), parts if rank == 0 else []
    if name == "scatter":
        return dist.scatter(tensor, parts if rank == 0 else None, src=0, async_op=True), [tensor]
    if name == "reduce":
        return dist.reduce(tensor, dst=0, async_op=True), [tensor]
    if name == "reduce_scatter_tensor":
        output = torch.empty(2, 2)
        return dist.reduce_scatter_tensor(output, torch.full((size, 2, 2), value), async_op=True), [output]
    assert name == "all_to_all"
    return dist.all_to_all(parts, [tensor] * size, async_op=True), parts


def _addresses(value: Any) -> Any:
    return [_addresses(each) for each in value] if isinstance(value, list) else value.data_ptr()


def _futures(rank: int, name: str) -> None:
    work, outputs = _start(name, rank, dist.get_world_size(), float(rank))
    future = work.get_future()
    addresses = future.then(lambda done: _addresses(done.value()))
    assert work.wait()
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert addresses.wait() == _addresses(outputs)
    assert _addresses(future.value()) == _addresses(outputs)
    assert work.get_future_result().wait() == 0
    if name != "allgather_coalesced":
        assert _addresses(work.result()) == _addresses(outputs)


FUTURES = ("broadcast", "all_gather", "all_gather_into_tensor", "allgather_coalesced", "gather", "scatter")


@pytest.mark.parametrize("name", [*FUTURES, "all_to_all", "reduce", "reduce_scatter_tensor"])
def test_futures_hold_the_outputs(three: Ranks, name: str) -> None:
    three.run(_futures, name)


def _wrong(_rank: int) -> None:
    with pytest.raises(ValueError, match="all_gather: an output of Int for an input of Float"):
        dist.distributed_c10d._get_default_group().allgather([[torch.ones(3, dtype=torch.int32)] * 3], [torch.ones(3)])
    with pytest.raises(ValueError, match="all_gather_into_tensor: the output has room for 8 elements of 9"):
        dist.all_gather_into_tensor(torch.ones(8), torch.ones(3))
    with pytest.raises(ValueError, match="all_to_all: expected are 3 outputs, given are 2"):
        dist.all_to_all([torch.ones(3)] * 2, [torch.ones(3)] * 3)
    with pytest.raises(ValueError, match="broadcast: expected are dense CPU tensors; one is Sparse"):
        _group()._get_backend(torch.device("cpu")).broadcast([torch.eye(3).to_sparse()])
    with pytest.raises(RuntimeError, match="Split sizes"):
        dist.all_to_all_single(torch.ones(3), torch.ones(3), [1, 1, 1], [1, 1, 2])
    with pytest.raises(RuntimeError, match="single memory location"):
        dist.all_gather([torch.ones(1).expand(3) for _ in range(3)], torch.ones(3))
    dist.barrier()  # nothing was sent: the group goes on


def test_a_wrong_call_is_an_error_that_leaves_the_group_alone(three: Ranks) -> None:
    three.run(_wrong)


@contextmanager
def _machines(*names: str, **environment: str) -> Iterator[Ranks]:
    with Ranks(len(names), environment, of_rank=[{"FAIRRING_MACHINE": name} for name in names]) as ranks:
        ranks.init()
        yield ranks
        assert ranks.close() == [0] * len(names)


def _element(call: int, source: int, target: int) -> float:
    return float(call * 100 + source * 10 + target)


def _several_large_ones(rank: int) -> None:
    """Calls of every kind with every root, larger than a slice, all under way at once."""
    size, elements = dist.get_world_size(), 30_000
    pending: list[Any] = []
    outcomes = []
    for root in range(size):
        broadcast = torch.full((elements,), _element(0, rank, 0))
        pending.append(dist.broadcast(broadcast, root, async_op=True))
        outcomes.append((broadcast, _element(0, root, 0)))
        parts = [torch.full((elements,), _element(1, rank, other)) for other in range(size)]
        scattered = torch.empty(elements)
        pending.append(dist.scatter(scattered, parts if rank == root else None, root, async_op=True))
        outcomes.append((scattered, _element(1, root, rank)))
        gathered = [torch.empty(elements) for _ in range(size)] if rank == root else None
        pending.append(dist.gather(torch.full((elements,), _element(2, rank, root)), gathered, root, async_op=True))
        outcomes += [(part, _element(2, source, root)) for source, part in enumerate(gathered or [])]
        summed = torch.full((elements,), float(rank + root))
        pending.append(dist.reduce(summed, root, async_op=True))
        untouched, whole = float(rank + root), float(size * root + size * (size - 1) // 2)
        outcomes.append((summed, whole if rank == root else untouched))
        splits = [[(source * 7 + target * 3 + root) % 5 * 4_000 for target in range(size)] for source in range(size)]
        arriving = [splits[source][rank] for source in range(size)]
        exchanged = torch.empty(sum(arriving))
        leaving = torch.cat([torch.full((count,), _element(3, rank, to)) for to, count in enumerate(splits[rank])])
        pending.append(dist.all_to_all_single(exchanged, leaving, arriving, splits[rank], async_op=True))
        outcomes += [(part, _element(3, source, rank)) for source, part in enumerate(exchanged.split(arriving))]
    for work in reversed(pending):
        work.wait()
    for number, (tensor, expected) in enumerate(outcomes):
        assert bool((tensor == expected).all()), f"outcome {number} of rank {rank}: {tensor} instead of {expected}"


@pytest.mark.parametrize("machines", ["aabbc", "abcd", "aaaa", "abab"])
def test_large_calls_of_every_kind_arrive_whole_from_every_root(machines: str) -> None:
    with _machines(*machines, FAIRRING_SLICE_SIZE="64 KiB") as ranks:
        ranks.run(_several_large_ones)


def _sizes_that_do_not_fit(rank: int) -> str:
    arriving = [1, 3, 1] if rank == 0 else [1, 1, 1]
    with pytest.raises(dist.DistBackendError) as caught:
        dist.all_to_all_single(torch.empty(sum(arriving)), torch.ones(3), arriving, [1, 1, 1])
    dist.barrier()
    return str(caught.value)


def test_sizes_that_do_not_fit_are_an_error_on_every_rank_and_the_group_goes_on(three: Ranks) -> None:
    texts = three.run(_sizes_that_do_not_fit)
    assert "rank 1 has 4 B for rank 0, which has room for 12 B from it" in texts[0]
    assert all("rank 0 refused its part of all_to_all_single" in text for text in texts[1:])


def _refuses_a_broadcast(rank: int) -> float:
    shared = torch.zeros(1).expand(4) if rank == 1 else torch.full((4,), float(rank))
    if rank == 1:
        with pytest.raises(dist.DistBackendError, match="rank 1 refused tensor 0 of 1 in broadcast"):
            dist.broadcast(shared, 2)
    else:
        dist.broadcast(shared, 2)
    dist.barrier()
    return shared.sum().item()


def test_who_cannot_take_a_broadcast_keeps_it_from_nobody_else(three: Ranks) -> None:
    assert three.run(_refuses_a_broadcast) == [8.0, 0.0, 8.0]
