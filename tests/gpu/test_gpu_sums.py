"""The results of all_reduce on CUDA tensors, and whose calls they are, in emulated machines."""

from __future__ import annotations

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import carried
from ranks import Ranks, on_ranks

pytestmark = pytest.mark.gpu

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
OURS = [(name, dtype) for name in ("SUM", "AVG") for dtype in FLOATS]
NCCLS = [("SUM", torch.int64), ("PRODUCT", torch.float16), ("MAX", torch.float32)]
# Emulated devices take seconds for each, so `make test-emulated-cuda` leaves out the others.
QUICK = [("SUM", torch.float32), ("SUM", torch.bfloat16)]
SUMS = [
    pytest.param(name, dtype, id=f"{name}-{dtype}", marks=() if (name, dtype) in QUICK else pytest.mark.slow)
    for name, dtype in OURS
]
REDUCE = {
    "SUM": lambda stack: stack.sum(0),
    "AVG": lambda stack: stack.sum(0) / len(stack),
    "PRODUCT": lambda stack: stack.prod(0),
    "MAX": lambda stack: stack.amax(0),
}


def _sizes(ranks: int) -> list[int]:
    several_slices = emulated_devices.fewer(8 << 20) + 5  # elements
    return sorted({0, 1, ranks - 1, ranks, ranks + 1, 1000, emulated_devices.fewer(1 << 20) + 1, several_slices})


def _values(rank: int, elements: int, ranks: int, dtype: torch.dtype) -> torch.Tensor:
    """Not alike on all ranks; of few bits, so that sums and averages of four are exact in every dtype."""
    pattern = (torch.arange(elements, device="cuda") * 7 + rank * rank) % 3
    return ((pattern - 1) * ranks).to(dtype)


@pytest.mark.parametrize(("name", "dtype"), SUMS)
@on_ranks("gpu_cluster")
def test_sums_and_averages_of_floats(rank: int, name: str, dtype: torch.dtype) -> None:
    ranks = dist.get_world_size()
    for elements in _sizes(ranks):
        tensor = _values(rank, elements, ranks, dtype)
        stack = torch.stack([_values(other, elements, ranks, dtype).double() for other in range(ranks)])
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
        expected = REDUCE[name](stack)
        if elements > ranks + 1:
            assert not torch.equal(stack[0], expected), "a call that does nothing would pass"
        assert torch.equal(tensor.double(), expected.to(dtype).double()), f"{name} of {elements} {dtype}"


def _railed(_rank: int, name: str, dtype: torch.dtype) -> int:
    """The bytes that our rails carry for a call, whose result is right."""
    before, tensor = carried(), torch.full((300,), 2, device="cuda").to(dtype)
    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
    stack = torch.full((dist.get_world_size(), 300), 2.0)
    assert torch.equal(tensor.cpu().double(), REDUCE[name](stack).double())
    return carried() - before


def test_other_operations_and_dtypes_are_nccls(two_gpu_machines: Ranks) -> None:
    for name, dtype in [*OURS, *NCCLS]:
        carried = two_gpu_machines.run(_railed, name, dtype)
        assert [amount > 0 for amount in carried] == [(name, dtype) in OURS] * 2, f"{name} of {dtype}: {carried}"


@on_ranks("gpu_cluster")
def test_premultiplied_sums_take_each_ranks_factor(rank: int) -> None:
    tensor = torch.full((1000,), 2.0, device="cuda")
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(float(rank + 1)))
    assert torch.equal(tensor, torch.full_like(tensor, 2.0 * sum(range(1, dist.get_world_size() + 1))))


@on_ranks("gpu_cluster")
def test_a_factor_may_lie_on_the_device(rank: int) -> None:
    tensor = torch.full((1000,), 2.0, device="cuda")
    factor = torch.tensor([float(rank + 1)], device="cuda")
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor))
    assert torch.equal(tensor, torch.full_like(tensor, 2.0 * sum(range(1, dist.get_world_size() + 1))))


MANY = [(dtype, elements) for elements in (1, 3, 0, 70_001, 17) for dtype in FLOATS]


@on_ranks("gpu_cluster")
def test_many_tensors_of_several_dtypes_are_reduced_in_one_call(rank: int) -> None:
    ranks = dist.get_world_size()
    tensors = [_values(rank, elements, ranks, dtype) for dtype, elements in MANY]
    with dist._coalescing_manager(device=tensors[0].device):
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor, (dtype, elements) in zip(tensors, MANY, strict=True):
        stack = torch.stack([_values(other, elements, ranks, dtype).double() for other in range(ranks)])
        assert torch.equal(tensor.double(), stack.sum(0).to(dtype).double()), f"{elements} {dtype}"


@on_ranks("gpu_cluster")
def test_one_group_reduces_tensors_of_both_devices(rank: int) -> None:
    ranks = dist.get_world_size()
    tensors = [torch.full((100_003,), float(rank), device=device) for device in ("cpu", "cuda", "cpu", "cuda")]
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()
    for tensor in tensors:
        assert torch.equal(tensor, torch.full_like(tensor, float(sum(range(ranks)))))


def _bits_of_noise(rank: int) -> list[int]:
    torch.manual_seed(rank)
    tensor = torch.randn(100_003, device="cuda", dtype=torch.bfloat16)
    dist.all_reduce(tensor)
    return tensor.view(torch.int16).tolist()


def test_all_ranks_get_the_same_bits_in_every_run(gpu_cluster: Ranks) -> None:
    first = gpu_cluster.run(_bits_of_noise)
    assert all(one == first[0] for one in first)
    assert gpu_cluster.run(_bits_of_noise) == first


@on_ranks("gpu_cluster")
def test_several_buckets_are_in_flight_with_other_calls_among_them(rank: int) -> None:
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
