"""The results of reduce_scatter_tensor and all_gather_into_tensor on CUDA tensors, in emulated machines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gpu_machines import carried, start
from ranks import Ranks, on_ranks

pytestmark = pytest.mark.gpu

REDUCED = [
    ("SUM", torch.float32),
    ("AVG", torch.float32),
    ("SUM", torch.bfloat16),
    ("MAX", torch.uint8),  # NCCL's
]
REDUCE = {
    "SUM": lambda stack: stack.sum(0),
    "AVG": lambda stack: stack.sum(0) / len(stack),
    "MAX": lambda stack: stack.amax(0),
}
GATHERED = [torch.float32, torch.bfloat16, torch.int16, torch.bool, torch.complex64]
SIZES = [0, 1, 4, 1000, 4096, 150_001]  # elements of a block; the last takes several slices of a call
SMALL = {"FAIRRING_SLICE_SIZE": "1MiB", "FAIRRING_TOTAL_MEMORY": "4MiB"}
# Emulated devices take a quarter of a minute for each, so `make test-emulated-cuda` leaves out the others.
LAYOUTS = [*(pytest.param(layout, marks=pytest.mark.slow) for layout in ("2x1", "3x1", "2x4")), "2x2"]


@pytest.fixture(scope="module", params=LAYOUTS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    ranks = start(request.param, environment=SMALL)
    yield ranks
    assert ranks.close() == [0] * ranks.size


def _values(rank: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
    """Values of few bits, so that sums, products and averages of four are exact in every dtype."""
    return ((torch.arange(elements, device="cuda") * 7 + rank * rank) % 3 + 1).to(dtype)


@pytest.mark.parametrize(("name", "dtype"), REDUCED)
@on_ranks("cluster")
def test_reduce_scatter_computes_operations(rank: int, name: str, dtype: torch.dtype) -> None:
    ranks = dist.get_world_size()
    for elements in SIZES:
        before = carried()
        inputs = [_values(other, elements * ranks, dtype).mul(ranks if name == "AVG" else 1) for other in range(ranks)]
        output = torch.full((elements,), 9, device="cuda").to(dtype)
        dist.reduce_scatter_tensor(output, inputs[rank], op=getattr(dist.ReduceOp, name))
        block = torch.stack([one.double() for one in inputs])[:, rank * elements : (rank + 1) * elements]
        assert torch.equal(output.double(), REDUCE[name](block).to(dtype).double()), f"{name} of {elements} {dtype}"
        assert (carried() > before) == (elements > 0 and name != "MAX"), "who served it?"


@pytest.mark.parametrize("dtype", GATHERED, ids=str)
@on_ranks("cluster")
def test_all_gather_moves_every_dtype(rank: int, dtype: torch.dtype) -> None:
    ranks = dist.get_world_size()
    for elements in SIZES:
        for in_place in (False, True):
            before = carried()
            output = torch.zeros(elements * ranks, device="cuda").to(dtype)
            mine = output[rank * elements : (rank + 1) * elements] if in_place else torch.empty_like(output[:elements])
            mine.copy_(_values(rank, elements, dtype))
            dist.all_gather_into_tensor(output, mine)
            assert torch.equal(output, torch.cat([_values(other, elements, dtype) for other in range(ranks)]))
            assert (carried() > before) == (elements > 0), "who served it?"


@on_ranks("cluster")
def test_several_tensors_share_a_call(rank: int) -> None:
    """One call of each kind with several dtypes and sizes."""
    ranks = dist.get_world_size()
    kinds = [(torch.float32, 5), (torch.bfloat16, 70_001), (torch.float32, 0), (torch.float64, 300)]
    inputs = [_values(rank, elements * ranks, dtype) for dtype, elements in kinds]
    outputs = [torch.empty(elements, device="cuda", dtype=dtype) for dtype, elements in kinds]
    with dist._coalescing_manager(device=inputs[0].device):
        for whole, part in zip(inputs, outputs, strict=True):
            dist.reduce_scatter_tensor(part, whole)
    gathered = [torch.empty_like(whole) for whole in inputs]
    with dist._coalescing_manager(device=inputs[0].device, async_ops=True) as works:
        for whole, part in zip(gathered, outputs, strict=True):
            dist.all_gather_into_tensor(whole, part)
    works.wait()
    for whole, (dtype, elements) in zip(gathered, kinds, strict=True):
        expected = torch.stack([_values(other, elements * ranks, dtype).double() for other in range(ranks)]).sum(0)
        assert torch.equal(whole.double(), expected), f"{elements} {dtype}"


@on_ranks("cluster")
def test_streams_and_groups_come_before_and_after(rank: int) -> None:
    """Two groups in flight; the caller's stream is late, drops inputs at once and writes over results it has read."""
    ranks = dist.get_world_size()
    groups: list[Any] = [dist.group.WORLD, dist.new_group()]
    elements = 1 << 18
    for turn in range(6):
        whole, part = torch.zeros(elements * ranks, device="cuda"), torch.zeros(elements, device="cuda")
        whole.add_(float(rank + turn))
        part.add_(float(rank * 10 + turn))
        sums, parts = torch.empty_like(part), torch.empty_like(whole)
        works: list[Any] = [
            dist.reduce_scatter_tensor(sums, whole, group=groups[turn % 2], async_op=True),
            dist.all_gather_into_tensor(parts, part, group=groups[1 - turn % 2], async_op=True),
        ]
        del whole, part
        torch.full((elements * ranks,), -1.0, device="cuda")  # would take their memory
        for work in works:
            work.wait()
        assert torch.equal(sums, torch.full_like(sums, float(sum(other + turn for other in range(ranks)))))
        expected = torch.arange(ranks, device="cuda").repeat_interleave(elements) * 10.0 + turn
        assert torch.equal(parts, expected)
        sums.fill_(-1.0)
        parts.fill_(-1.0)


@on_ranks("cluster")
def test_lists_and_captured_calls_are_nccls(rank: int) -> None:
    ranks = dist.get_world_size()
    before = carried()
    lists = [torch.empty(5, device="cuda") for _ in range(ranks)]
    dist.all_gather(lists, torch.full((5,), float(rank), device="cuda"))
    assert [one[0].item() for one in lists] == list(range(ranks))
    graph, output = torch.cuda.CUDAGraph(), torch.empty(ranks * 4, device="cuda")
    part = torch.zeros(4, device="cuda")
    with torch.cuda.graph(graph):
        dist.all_gather_into_tensor(output, part)
    part.fill_(float(rank))
    graph.replay()
    assert torch.equal(output, torch.arange(ranks, device="cuda").repeat_interleave(4).float())
    with pytest.raises((ValueError, RuntimeError)):
        dist.all_gather_into_tensor(torch.empty(ranks * 4 + 1, device="cuda"), part)
    assert carried() == before


def _bits(rank: int, device: str) -> str:
    """Floats that no order of sums but one gives these bits of."""
    bits = hashlib.sha256()
    for dtype in (torch.float32, torch.bfloat16):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            torch.manual_seed(rank)
            for elements in (1, 1000, 300_001):
                whole = (torch.randn(elements * dist.get_world_size()) * 1000).to(dtype).to(device)
                output = torch.empty(elements, dtype=dtype, device=device)
                dist.reduce_scatter_tensor(output, whole, op=op)
                bits.update(bytes(output.cpu().view(torch.uint8).tolist()))
    return bits.hexdigest()


# With two ranks NCCL's order makes no difference. AVG of 16 bits on such a machine rounds once more than on the CPU.
@pytest.mark.parametrize("layout", [pytest.param("3x1", marks=pytest.mark.slow), "2x2"])
def test_sums_have_the_bits_of_cpu_tensors(layout: str) -> None:
    ranks = start(layout, environment=SMALL)
    assert ranks.run(_bits, "cuda") == ranks.run(_bits, "cpu")
    assert ranks.close() == [0] * ranks.size
