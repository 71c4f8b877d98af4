"""all_reduce and reduce: operations, dtypes, shapes, layouts. Expected values are made by torch in one process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from features.rank import UNSIGNED, Rank, all_made, close, made, same

Op = dist.ReduceOp
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)
_ARITHMETIC: dict[Any, Callable[..., torch.Tensor]] = {
    Op.SUM: torch.add,
    Op.PRODUCT: torch.mul,
    Op.MIN: torch.minimum,
    Op.MAX: torch.maximum,
}
_BITS: dict[Any, Callable[..., torch.Tensor]] = {
    Op.BAND: torch.bitwise_and,
    Op.BOR: torch.bitwise_or,
    Op.BXOR: torch.bitwise_xor,
}


def _reduced(op: Any, parts: list[torch.Tensor]) -> torch.Tensor:
    return functools.reduce({**_ARITHMETIC, **_BITS}[op], parts)


def _all_reduces(rank: Rank, dtype: torch.dtype, op: Any, *shape: int) -> None:
    tensor = made(rank.number, *shape, dtype=dtype)
    dist.all_reduce(tensor, op=op)
    same(tensor, _reduced(op, all_made(rank.size, *shape, dtype=dtype)))


def all_reduce_of_floats(rank: Rank) -> None:
    """all_reduce of floats of 64, 32 and 16 bits: SUM, PRODUCT, MIN, MAX"""
    for dtype in FLOATS:
        for op in _ARITHMETIC:
            _all_reduces(rank, dtype, op, 37)


def all_reduce_of_integers(rank: Rank) -> None:
    """all_reduce of integers: SUM, PRODUCT, MIN, MAX"""
    for dtype in INTEGERS:
        for op in _ARITHMETIC:
            _all_reduces(rank, dtype, op, 37)


def all_reduce_of_bits(rank: Rank) -> None:
    """all_reduce of integers: BAND, BOR, BXOR"""
    for dtype in INTEGERS:
        for op in _BITS:
            _all_reduces(rank, dtype, op, 37)


def all_reduce_of_rare_integers(rank: Rank) -> None:
    """all_reduce of int16, uint16, uint32, uint64"""
    for dtype in (torch.int16, *UNSIGNED[1:]):
        tensor = made(rank.number, 37, dtype=dtype)
        dist.all_reduce(tensor)
        expected = sum(part.long() for part in all_made(rank.size, 37, dtype=dtype))
        same(tensor.long(), torch.as_tensor(expected))


def all_reduce_average(rank: Rank) -> None:
    """all_reduce of floats: AVG"""
    for dtype in FLOATS:
        tensor = made(rank.number, 37, dtype=dtype) * rank.size
        dist.all_reduce(tensor, op=Op.AVG)
        same(tensor, _reduced(Op.SUM, all_made(rank.size, 37, dtype=dtype)))


def all_reduce_average_of_integers(rank: Rank) -> None:
    """all_reduce of int64: AVG"""
    tensor = made(rank.number, 37, dtype=torch.int64)
    dist.all_reduce(tensor, op=Op.AVG)
    total = _reduced(Op.SUM, all_made(rank.size, 37, dtype=torch.int64))
    same(tensor, torch.div(total, rank.size, rounding_mode="trunc"))


def all_reduce_premultiplied(rank: Rank) -> None:
    """all_reduce: PREMUL_SUM"""
    tensor = made(rank.number, 37)
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(2.0))
    same(tensor, 2 * _reduced(Op.SUM, all_made(rank.size, 37)))


def all_reduce_of_complex(rank: Rank) -> None:
    """all_reduce of complex numbers: SUM"""
    for dtype in (torch.complex64, torch.complex128):
        _all_reduces(rank, dtype, Op.SUM, 5, 7)


def all_reduce_of_bool(rank: Rank) -> None:
    """all_reduce of bool: SUM, MAX are or; PRODUCT, MIN are and"""
    parts = torch.stack(all_made(rank.size, 37, dtype=torch.bool))
    for op, expected in {Op.SUM: parts.any(0), Op.MAX: parts.any(0), Op.MIN: parts.all(0)}.items():
        tensor = made(rank.number, 37, dtype=torch.bool)
        dist.all_reduce(tensor, op=op)
        same(tensor, expected)


def all_reduce_of_specials(rank: Rank) -> None:
    """all_reduce of infinities, NaN and denormal numbers"""
    tensor = torch.tensor([float("inf"), float("nan"), 1e-42, 1.0]) if rank.number == 2 else torch.zeros(4)
    dist.all_reduce(tensor)
    same(tensor, torch.tensor([float("inf"), float("nan"), 1e-42, 1.0]))


def all_reduce_of_a_scalar(rank: Rank) -> None:
    """all_reduce of a tensor without dimensions"""
    tensor = torch.tensor(float(rank.number))
    dist.all_reduce(tensor)
    assert tensor.item() == sum(rank.everyone)
    assert tensor.dim() == 0


def all_reduce_of_nothing(rank: Rank) -> None:
    """all_reduce of an empty tensor"""
    for shape in ((0,), (3, 0, 2)):
        tensor = torch.empty(shape)
        dist.all_reduce(tensor)
        assert tensor.shape == shape
    _all_reduces(rank, torch.float32, Op.SUM, 3)


def all_reduce_of_a_transposed_tensor(rank: Rank) -> None:
    """all_reduce of a transposed (dense) tensor and of channels last"""
    expected = _reduced(Op.SUM, all_made(rank.size, 6, 5))
    tensor = made(rank.number, 6, 5).t()
    dist.all_reduce(tensor)
    same(tensor, expected.t())
    image = made(rank.number, 2, 3, 4, 5).to(memory_format=torch.channels_last)
    dist.all_reduce(image)
    same(image, _reduced(Op.SUM, all_made(rank.size, 2, 3, 4, 5)).to(memory_format=torch.channels_last))


def all_reduce_of_a_strided_view(rank: Rank) -> None:
    """all_reduce of a view with gaps leaves what lies between alone"""
    whole = made(rank.number, 6, 8)
    before = whole.clone()
    dist.all_reduce(whole[:, ::2])
    same(whole[:, ::2], _reduced(Op.SUM, all_made(rank.size, 6, 8))[:, ::2])
    same(whole[:, 1::2], before[:, 1::2])


def all_reduce_of_a_slice(rank: Rank) -> None:
    """all_reduce of a slice in the middle of a tensor"""
    whole = made(rank.number, 100)
    dist.all_reduce(whole[13:71])
    expected = made(rank.number, 100)
    expected[13:71] = _reduced(Op.SUM, all_made(rank.size, 100))[13:71]
    same(whole, expected)


def all_reduce_of_many_megabytes(rank: Rank) -> None:
    """all_reduce of 16 MiB"""
    _all_reduces(rank, torch.float32, Op.SUM, 4 << 20)


def all_reduce_of_sparse_tensors(rank: Rank) -> None:
    """all_reduce of sparse tensors"""
    indices = torch.tensor([[rank.number, rank.next]])
    tensor = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0]), (rank.size,))
    dist.all_reduce(tensor)
    same(tensor.to_dense(), torch.full((rank.size,), 3.0))


def all_reduce_in_flight(rank: Rank) -> None:
    """40 all_reduces in flight, waited for in another order"""
    tensors = [made(rank.number, 1000 + number) for number in range(40)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    for number, tensor in enumerate(tensors):
        same(tensor, _reduced(Op.SUM, all_made(rank.size, 1000 + number)))


def all_reduce_from_several_threads(rank: Rank) -> None:
    """all_reduce from four threads, each on a group of its own"""
    groups: list[Any] = [dist.new_group() for _ in range(4)]
    tensors = [made(rank.number + index, 5000) for index in range(4)]

    def reduce(index: int) -> None:
        for _ in range(10):
            tensors[index].copy_(made(rank.number + index, 5000))
            dist.all_reduce(tensors[index], group=groups[index])

    threads = [threading.Thread(target=reduce, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, tensor in enumerate(tensors):
        same(tensor, _reduced(Op.SUM, [made(number + index, 5000) for number in rank.everyone]))


def all_reduce_of_several(rank: Rank) -> None:
    """all_reduce_coalesced"""
    tensors = [made(rank.number, count) for count in (3, 0, 50)]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        same(tensor, _reduced(Op.SUM, all_made(rank.size, tensor.numel())))


def _reduces(rank: Rank, dtype: torch.dtype, op: Any, root: int) -> None:
    tensor = made(rank.number, 37, dtype=dtype)
    dist.reduce(tensor, dst=root, op=op)
    if rank.number == root:
        same(tensor, _reduced(op, all_made(rank.size, 37, dtype=dtype)))


def reduce_with_every_operation(rank: Rank) -> None:
    """reduce to each rank: SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR"""
    for root in rank.everyone:
        for op in _ARITHMETIC:
            _reduces(rank, torch.float32, op, root)
        for op in _BITS:
            _reduces(rank, torch.int32, op, root)


def reduce_average(rank: Rank) -> None:
    """reduce of floats and int64: AVG"""
    parts = [4 * part for part in all_made(rank.size, 37)]
    for dtype in (torch.float32, torch.int64):
        tensor = parts[rank.number].to(dtype, copy=True)
        dist.reduce(tensor, dst=1, op=Op.AVG)
        if rank.number == 1:
            close(tensor.float(), torch.stack(parts).sum(0) / rank.size)


def reduce_of_complex(rank: Rank) -> None:
    """reduce of complex numbers"""
    _reduces(rank, torch.complex64, Op.SUM, 1)


def reduce_of_rare_dtypes(rank: Rank) -> None:
    """reduce of bool, bfloat16 and int16"""
    for dtype, op in ((torch.bfloat16, Op.SUM), (torch.int16, Op.SUM), (torch.bool, Op.MAX)):
        _reduces(rank, dtype, op, 1)
