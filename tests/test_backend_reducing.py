"""reduce and reduce_scatter in all their forms: each rank gets its own part of all_reduce's result, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
]
SUMS = ["SUM", "AVG"]
ORDERS = ["PRODUCT", "MIN", "MAX"]
BITS = ["BAND", "BOR", "BXOR"]
TABLE = [
    *((dtype, [*SUMS, "PREMUL_SUM", *ORDERS]) for dtype in FLOATS),
    *((dtype, [*SUMS, *ORDERS, *BITS]) for dtype in INTEGERS),
    (torch.bool, ["SUM", *ORDERS, *BITS]),
    *((dtype, [*SUMS, "PREMUL_SUM"]) for dtype in (torch.complex64, torch.complex128)),
]

Parts = list[torch.Tensor]
Scatter = Callable[[torch.Tensor, Parts, Any], Any]


@pytest.fixture(scope="module", params=[1, 3])
def several(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    ranks = Ranks(request.param)
    ranks.init()
    yield ranks
    assert ranks.close() == [0] * request.param


def _operation(name: str) -> Any:
    return dist._make_nccl_premul_sum(0.5) if name == "PREMUL_SUM" else getattr(dist.ReduceOp, name)


def _values(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    if dtype.is_floating_point or dtype.is_complex:
        return (
            torch.randn(shape, generator=generator, dtype=torch.complex64)
            .to(dtype if dtype.is_complex else torch.float32)
            .to(dtype)
        )
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape, generator=generator).to(dtype)


def _same_bits(ours: torch.Tensor, expected: torch.Tensor) -> bool:
    return ours.shape == expected.shape and ours.contiguous().flatten().view(torch.uint8).equal(
        expected.contiguous().flatten().view(torch.uint8)
    )


def _all_reduced(tensor: torch.Tensor, name: str) -> torch.Tensor:
    result = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(result, op=_operation(name))
    return result


def _by_list(output: torch.Tensor, parts: Parts, operation: Any) -> Any:
    return dist.reduce_scatter(output, parts, op=operation, async_op=True)


def _concatenated(output: torch.Tensor, parts: Parts, operation: Any) -> Any:
    return dist.reduce_scatter_tensor(output, torch.cat(parts), op=operation, async_op=True)


def _stacked(output: torch.Tensor, parts: Parts, operation: Any) -> Any:
    return dist.reduce_scatter_tensor(output, torch.stack(parts), op=operation, async_op=True)


def _coalesced(output: torch.Tensor, parts: Parts, operation: Any) -> Any:
    options = dist.ReduceScatterOptions()
    options.reduceOp = operation
    more = torch.empty_like(output)
    inputs = [torch.cat(parts), torch.stack(parts)]
    group: Any = dist.group.WORLD
    work = group.reduce_scatter_tensor_coalesced([output, more], inputs, options)
    work.wait()
    assert _same_bits(output, more)
    return work


_SCATTERS: dict[str, Scatter] = {
    "reduce_scatter": _by_list,
    "reduce_scatter_tensor, concatenated": _concatenated,
    "reduce_scatter_tensor, stacked": _stacked,
    "reduce_scatter_tensor_coalesced": _coalesced,
}


def _scattered(rank: int, form: str, dtype: torch.dtype, names: list[str]) -> None:
    size = dist.get_world_size()
    for name in names:
        for shape in [(7,), (5, 3), (0,), (0, 4), (1,)]:
            parts = list(_values(rank, (size, *shape), dtype).unbind())
            expected = _all_reduced(torch.stack(parts), name)[rank]
            before = [part.clone() for part in parts]
            output = torch.empty(shape, dtype=dtype)
            _SCATTERS[form](output, parts, _operation(name)).wait()
            assert _same_bits(output, expected), (form, name, dtype, shape, output, expected)
            assert all(map(_same_bits, parts, before)), "the inputs were written"


@pytest.mark.parametrize("form", _SCATTERS)
@pytest.mark.parametrize(("dtype", "names"), TABLE, ids=str)
def test_a_reduce_scatter_is_this_ranks_part_of_the_all_reduce(
    several: Ranks, form: str, dtype: torch.dtype, names: list[str]
) -> None:
    several.run(_scattered, form, dtype, names)


def _reduced(rank: int, dtype: torch.dtype, names: list[str]) -> None:
    for name in names:
        for root in range(dist.get_world_size()):
            for shape in [(7,), (5, 3), (0,)]:
                tensor = _values(rank, shape, dtype)
                total = _all_reduced(tensor, name)
                expected = total if rank == root else tensor.clone()
                dist.reduce(tensor, dst=root, op=_operation(name))
                assert _same_bits(tensor, expected), (name, dtype, shape, tensor, expected)


@pytest.mark.parametrize(("dtype", "names"), TABLE, ids=str)
def test_a_reduce_gives_the_root_the_all_reduce_and_leaves_the_others_alone(
    several: Ranks, dtype: torch.dtype, names: list[str]
) -> None:
    several.run(_reduced, dtype, names)


def _uneven(rank: int) -> None:
    size = dist.get_world_size()
    shapes = [(3, 2), (0,), (5,), (1, 1, 4)][:size]
    parts = [torch.full(shape, float(rank + 10 * number)) for number, shape in enumerate(shapes)]
    output = torch.empty(shapes[rank])
    dist.reduce_scatter(output, parts)
    assert output.tolist() == torch.full(shapes[rank], sum(range(size)) + 10.0 * rank * size).tolist()


def test_parts_may_have_different_shapes(several: Ranks) -> None:
    several.run(_uneven)


def _not_contiguous(rank: int) -> None:
    size = dist.get_world_size()
    base = torch.zeros(4, 6)
    output = base.t()[::2]
    parts = [(torch.arange(12.0).reshape(4, 3) + other).t() for other in range(size)]
    expected = (torch.arange(12.0).reshape(4, 3) + rank).t() * size
    dist.reduce_scatter(output, parts)
    assert torch.equal(output, expected)
    assert base.sum() == output.sum(), "what lies between the output's elements was written"
    dist.reduce_scatter_tensor(output, torch.stack(parts).transpose(1, 2).contiguous().transpose(1, 2))
    assert torch.equal(output, expected)
    output.fill_(rank + 1)
    dist.reduce(output, dst=0)
    assert output.unique().tolist() == [6.0 if rank == 0 else rank + 1]


def test_tensors_need_not_be_contiguous(three: Ranks) -> None:
    three.run(_not_contiguous)


def _in_place(rank: int) -> None:
    size = dist.get_world_size()
    whole = torch.arange(4.0 * size)
    output = whole.chunk(size)[rank]
    dist.reduce_scatter_tensor(output, whole)
    expected = torch.arange(4.0 * size)
    expected.chunk(size)[rank].mul_(size)
    assert torch.equal(whole, expected)


def test_the_output_may_be_a_part_of_the_input(three: Ranks) -> None:
    three.run(_in_place)


def _wrong(_rank: int) -> None:
    with pytest.raises(ValueError, match=r"reduce_scatter_tensor: the input's 7 elements .* 3 ranks"):
        dist.reduce_scatter_tensor(torch.empty(2), torch.ones(7))
    with pytest.raises(ValueError, match="reduce_scatter_tensor: the output has 3 elements"):
        dist.reduce_scatter_tensor(torch.empty(3), torch.ones(6))
    with pytest.raises(ValueError, match="reduce_scatter: expected are one output and 3 inputs, given are 1 and 2"):
        dist.reduce_scatter(torch.empty(3), [torch.ones(3)] * 2)
    with pytest.raises(RuntimeError, match=r"^reduce_scatter_tensor with BAND is not defined for tensors of Float"):
        dist.reduce_scatter_tensor(torch.empty(2), torch.ones(6), op=dist.ReduceOp.BAND)
    with pytest.raises(RuntimeError, match=r"^reduce with AVG is not defined for tensors of Bool"):
        dist.reduce(torch.ones(3, dtype=torch.bool), dst=0, op=dist.ReduceOp.AVG)
    dist.barrier()  # nothing was sent: the group goes on


def test_a_wrong_call_is_an_error_that_names_it(three: Ranks) -> None:
    three.run(_wrong)
