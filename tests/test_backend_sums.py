"""The sums that all_reduce computes: real processes of one machine over loopback."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64]


def _exact(rank: int, size: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
    """Multiples of the world's size, so small that sums and averages are exact in every dtype."""
    return (((torch.arange(elements) * 7 + rank * 3) % 11 - 5) * size).to(dtype)


def _check_sums(rank: int, dtype: torch.dtype, average: bool) -> None:
    size = dist.get_world_size()
    for elements in sorted({0, 1, size - 1, size, size + 1, 1 << 20}):
        tensor = _exact(rank, size, elements, dtype)
        total = torch.stack([_exact(other, size, elements, torch.int64) for other in range(size)]).sum(0)
        expected = (total // size if average else total).to(dtype)
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG if average else dist.ReduceOp.SUM)
        assert torch.equal(tensor, expected), f"{elements} elements: {tensor} instead of {expected}"


@pytest.mark.parametrize("average", [False, True], ids=["sum", "avg"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_reduce_gives_the_exact_sum(world: Ranks, dtype: torch.dtype, average: bool) -> None:
    world.run(_check_sums, dtype, average)


def _average_of_integers(rank: int) -> list[int]:
    tensor = torch.tensor([-7, 7, -1, 1]) if rank == 0 else torch.zeros(4, dtype=torch.int64)
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    return tensor.tolist()


def test_the_average_of_integers_truncates_toward_zero(pair: Ranks) -> None:
    assert pair.run(_average_of_integers) == [[-3, 3, 0, 0]] * 2


def _strided(rank: int) -> None:
    base = torch.zeros(6, 8)
    view = base[::2, 1::3]
    view.copy_(torch.arange(9.0).reshape(3, 3) * (rank + 1))
    work = dist.all_reduce(view, async_op=True)
    future = work.get_future()
    work.wait()
    assert torch.equal(view, torch.arange(9.0).reshape(3, 3) * 3)
    assert base.sum() == view.sum(), "what lies between the view's elements was written"
    assert future.wait()[0] is not None
    leaf = torch.ones(3, 2, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(leaf.t())
    assert torch.equal(leaf.detach(), torch.full((3, 2), 2.0))


def test_tensors_that_are_not_contiguous_get_their_sum_and_nothing_else(pair: Ranks) -> None:
    pair.run(_strided)


def _overlapping(_rank: int) -> None:
    with pytest.raises(RuntimeError, match="single memory location"):
        dist.all_reduce(torch.ones(1).expand(4))


def test_a_tensor_that_overlaps_itself_is_refused(pair: Ranks) -> None:
    pair.run(_overlapping)
