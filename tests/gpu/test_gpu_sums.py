"""The results of all_reduce on CUDA tensors: every operation and dtype, in emulated machines."""

from __future__ import annotations

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

pytestmark = pytest.mark.gpu

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]
# Emulated devices take seconds for each, so `make test-emulated-cuda` leaves out the others.
QUICK = [("SUM", torch.float32), ("SUM", torch.bfloat16), ("PRODUCT", torch.float16), ("MAX", torch.int8)]
OPERATIONS = [
    pytest.param(name, dtype, id=f"{name}-{dtype}", marks=() if (name, dtype) in QUICK else pytest.mark.slow)
    for name in ("SUM", "PRODUCT", "MIN", "MAX")
    for dtype in FLOATS + INTEGERS
]
REDUCE = {
    "SUM": lambda stack: stack.sum(0),
    "AVG": lambda stack: stack.sum(0) / len(stack),
    "PRODUCT": lambda stack: stack.prod(0),
    "MIN": lambda stack: stack.amin(0),
    "MAX": lambda stack: stack.amax(0),
}


def _sizes(ranks: int) -> list[int]:
    several_slices = emulated_devices.fewer(8 << 20) + 5  # elements
    return sorted({0, 1, ranks - 1, ranks, ranks + 1, 1000, emulated_devices.fewer(1 << 20) + 1, several_slices})


def _values(rank: int, elements: int, ranks: int, dtype: torch.dtype, name: str = "SUM") -> torch.Tensor:
    """Not alike on all ranks; of few bits, so that sums, products and averages of four are exact in every dtype."""
    pattern = (torch.arange(elements, device="cuda") * 7 + rank * rank) % 3
    signed = dtype != torch.uint8
    if name == "PRODUCT":
        return ((pattern + 1) * (-1 if signed and rank == 0 else 1)).to(dtype)
    return ((pattern - (1 if signed else 0)) * ranks).to(dtype)


def _check(rank: int, name: str, dtype: torch.dtype) -> None:
    ranks = dist.get_world_size()
    for elements in _sizes(ranks):
        tensor = _values(rank, elements, ranks, dtype, name)
        stack = torch.stack([_values(other, elements, ranks, dtype, name).double() for other in range(ranks)])
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
        expected = REDUCE[name](stack)
        if elements > ranks + 1:
            assert not torch.equal(stack[0], expected), "a call that does nothing would pass"
        assert torch.equal(tensor.double(), expected.to(dtype).double()), f"{name} of {elements} {dtype}"


@pytest.mark.parametrize(("name", "dtype"), OPERATIONS)
def test_all_reduce_computes_every_operation(gpu_cluster: Ranks, name: str, dtype: torch.dtype) -> None:
    gpu_cluster.run(_check, name, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_averages_are_exact_where_they_can_be(gpu_cluster: Ranks, dtype: torch.dtype) -> None:
    gpu_cluster.run(_check, "AVG", dtype)


def _premultiplied(rank: int) -> None:
    tensor = torch.full((1000,), 2.0, device="cuda")
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(float(rank + 1)))
    assert torch.equal(tensor, torch.full_like(tensor, 2.0 * sum(range(1, dist.get_world_size() + 1))))


def test_premultiplied_sums_take_each_ranks_factor(gpu_cluster: Ranks) -> None:
    gpu_cluster.run(_premultiplied)


def _premultiplied_by_a_tensor(rank: int) -> None:
    tensor = torch.full((1000,), 2.0, device="cuda")
    factor = torch.tensor([float(rank + 1)], device="cuda")
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor))
    assert torch.equal(tensor, torch.full_like(tensor, 2.0 * sum(range(1, dist.get_world_size() + 1))))


def test_a_factor_may_lie_on_the_device(gpu_cluster: Ranks) -> None:
    gpu_cluster.run(_premultiplied_by_a_tensor)


MANY = [(dtype, elements) for elements in (1, 3, 0, 70_001, 17) for dtype in FLOATS + INTEGERS]


def _many(rank: int) -> None:
    ranks = dist.get_world_size()
    tensors = [_values(rank, elements, ranks, dtype) for dtype, elements in MANY]
    with dist._coalescing_manager(device=tensors[0].device):
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor, (dtype, elements) in zip(tensors, MANY, strict=True):
        stack = torch.stack([_values(other, elements, ranks, dtype).double() for other in range(ranks)])
        assert torch.equal(tensor.double(), stack.sum(0).to(dtype).double()), f"{elements} {dtype}"


def test_many_tensors_of_any_dtypes_are_reduced_in_one_call(gpu_cluster: Ranks) -> None:
    gpu_cluster.run(_many)


def _both_devices(rank: int) -> None:
    ranks = dist.get_world_size()
    tensors = [torch.full((100_003,), float(rank), device=device) for device in ("cpu", "cuda", "cpu", "cuda")]
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()
    for tensor in tensors:
        assert torch.equal(tensor, torch.full_like(tensor, float(sum(range(ranks)))))


def test_one_group_reduces_tensors_of_both_devices(gpu_cluster: Ranks) -> None:
    gpu_cluster.run(_both_devices)


def _truths(rank: int) -> None:
    at = torch.arange(1001, device="cuda")
    for op, expected in ((dist.ReduceOp.MAX, at % dist.get_world_size() >= 0), (dist.ReduceOp.MIN, at < 0)):
        tensor = at % dist.get_world_size() == rank
        dist.all_reduce(tensor, op=op)
        assert torch.equal(tensor, expected)


def test_truths_are_reduced(gpu_cluster: Ranks) -> None:
    gpu_cluster.run(_truths)


def _eight_bits(rank: int, dtype: torch.dtype) -> None:
    ranks = dist.get_world_size()
    tensor = _values(rank, 10_001, ranks, torch.float32).to(dtype)
    expected = torch.stack([_values(other, 10_001, ranks, torch.float32) for other in range(ranks)]).sum(0)
    dist.all_reduce(tensor)
    assert torch.equal(tensor.float(), expected.to(dtype).float())


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_floats_of_eight_bits_are_summed(gpu_cluster: Ranks, dtype: torch.dtype) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("NCCL reduces floats of 8 bits from sm_90 on")
    gpu_cluster.run(_eight_bits, dtype)


def _bits_of_noise(rank: int) -> list[int]:
    torch.manual_seed(rank)
    tensor = torch.randn(100_003, device="cuda", dtype=torch.bfloat16)
    dist.all_reduce(tensor)
    return tensor.view(torch.int16).tolist()


def test_all_ranks_get_the_same_bits_in_every_run(gpu_cluster: Ranks) -> None:
    first = gpu_cluster.run(_bits_of_noise)
    assert all(one == first[0] for one in first)
    assert gpu_cluster.run(_bits_of_noise) == first


def _mixed(rank: int) -> None:
    works, tensors = [], []
    for turn in range(6):
        tensor = torch.full((1 << (10 + turn),), float(rank + turn), device="cuda" if turn % 2 else "cpu")
        works.append(dist.all_reduce(tensor, async_op=True))
        tensors.append(tensor)
    for turn, (work, tensor) in enumerate(zip(works, tensors, strict=True)):
        work.wait()
        ranks = dist.get_world_size()
        assert torch.equal(tensor, torch.full_like(tensor, sum(other + turn for other in range(ranks))))


def test_tensors_of_the_host_and_of_the_device_share_a_group(gpu_cluster: Ranks) -> None:
    gpu_cluster.run(_mixed)


def _several_buckets(rank: int) -> None:
    elements = emulated_devices.fewer(25 << 18)
    buckets = [torch.full((elements,), float(rank + number), device="cuda") for number in range(8)]
    works = [dist.all_reduce(bucket, async_op=True) for bucket in buckets]
    gathered = [torch.empty(4, device="cuda") for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, torch.full((4,), float(rank), device="cuda"))  # a delegated call among ours
    works.append(dist.all_reduce(extra := torch.ones(3, device="cuda"), async_op=True))
    for work in works:
        work.wait()
    ranks = dist.get_world_size()
    assert torch.equal(extra, torch.full_like(extra, float(ranks)))
    assert [one[0].item() for one in gathered] == list(range(ranks))
    for number, bucket in enumerate(buckets):
        assert torch.equal(bucket, torch.full_like(bucket, sum(other + number for other in range(ranks))))


def test_several_buckets_are_in_flight_with_other_calls_among_them(gpu_cluster: Ranks) -> None:
    gpu_cluster.run(_several_buckets)
