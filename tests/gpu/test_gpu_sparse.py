"""all_reduce of sparse CUDA tensors: beside the same tensors made dense, streams, allocators, futures and DDP."""

from __future__ import annotations

import gc
from typing import Any

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fairring.sparse

pytestmark = pytest.mark.gpu

SLOW_DTYPES = (torch.float64, torch.float16, torch.int64, torch.int8)
DTYPES: list[Any] = [torch.float32, torch.bfloat16, *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW_DTYPES)]
SHAPES = {"vectors": ((50,), (3,)), "scalars": ((50,), ()), "two sparse": ((7, 9), (2, 8)), "wide": ((700,), (1024,))}


def _random(rank: int, seed: int, dtype: torch.dtype, sparse: tuple[int, ...], dense: tuple[int, ...]) -> torch.Tensor:
    """A few entries, many twice, of small integers: sums are exact in every dtype. Some ranks have none."""
    numbers = torch.Generator().manual_seed(1000 * seed + rank)
    entries = int(torch.randint(0, 12, (), generator=numbers)) * int(torch.randint(0, 4, (), generator=numbers))
    indices = torch.stack([torch.randint(0, size, (entries,), generator=numbers) for size in sparse])
    values = torch.randint(-1, 2, (entries, *dense), generator=numbers).to(dtype)
    return torch.sparse_coo_tensor(indices, values, (*sparse, *dense)).cuda()


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().to(torch.float64).to_dense()


def _check_random(rank: int, dtype: torch.dtype, name: str, op: str) -> None:
    world = dist.get_world_size()
    for seed in range(10):
        tensors = [_random(other, seed, dtype, *SHAPES[name]) for other in range(world)]
        tensor = tensors[rank].clone()
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
        assert tensor.is_cuda
        assert tensor.is_coalesced()
        assert tensor.dtype == dtype
        expected = torch.stack([_dense(one) for one in tensors]).sum(0) / (world if op == "AVG" else 1)
        assert torch.equal(_dense(tensor), expected), f"seed {seed}"
        rows = sorted({tuple(row) for one in tensors for row in one._indices().t().tolist()})
        assert tensor.indices().t().tolist() == [list(row) for row in rows], f"seed {seed}"


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_sum_is_that_of_the_dense_tensors(two_gpu_machines: Ranks, dtype: torch.dtype, name: str) -> None:
    two_gpu_machines.run(_check_random, dtype, name, "SUM")


def test_the_average_divides_by_all_ranks(two_gpu_machines: Ranks) -> None:
    two_gpu_machines.run(_check_random, torch.float32, "vectors", "AVG")


def test_machines_of_several_ranks_sum_sparse_tensors(gpu_cluster: Ranks) -> None:
    gpu_cluster.run(_check_random, torch.float32, "vectors", "SUM")


ROWS, WIDTH = emulated_devices.fewer(20_000), 256


@pytest.mark.parametrize("stream", ["default", "side"])
@on_ranks("two_gpu_machines")
def test_the_callers_stream_comes_before_and_after(rank: int, stream: str) -> None:
    """Indices and values are written late, and written over as soon as wait() has returned."""
    where = torch.cuda.Stream() if stream == "side" else torch.cuda.default_stream()
    size = dist.get_world_size()
    with torch.cuda.stream(where):
        for turn in range(10):
            indices = torch.zeros(1, ROWS, dtype=torch.int64, device="cuda")
            values = torch.zeros(ROWS, WIDTH, device="cuda")
            tensor = torch.sparse_coo_tensor(indices, values, (2 * ROWS, WIDTH), check_invariants=False)
            for _ in range(20):
                values.add_(1.0).sub_(1.0)
            indices.copy_(torch.arange(ROWS, device="cuda") + ROWS * (turn % 2))
            values.fill_(float(rank + turn))
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            seen = tensor.values().clone()
            tensor.values().fill_(-1.0)
            assert torch.equal(seen, torch.full_like(seen, float(sum(other + turn for other in range(size))))), turn
            assert tensor.indices()[0, 0].item() == ROWS * (turn % 2)


@on_ranks("two_gpu_machines")
def test_results_that_are_dropped_early_are_read_to_the_end(rank: int) -> None:
    """Memory that a stream still reads when its tensor is dropped is not given to the next call's result."""
    size = dist.get_world_size()
    indices = torch.arange(ROWS, device="cuda").unsqueeze(0)
    sums = []
    for turn in range(8):
        tensor = torch.sparse_coo_tensor(indices, torch.full((ROWS, WIDTH), float(rank + turn), device="cuda"))
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        torch.cuda._sleep(20_000_000)  # the reading begins when the next call is under way
        sums.append(tensor.values().sum(dtype=torch.float64))
        del tensor, work
        gc.collect()
    for turn, total in enumerate(sums):
        assert total.item() == ROWS * WIDTH * sum(other + turn for other in range(size)), turn


@on_ranks("two_gpu_machines")
def test_sparse_and_dense_calls_are_in_flight_together(rank: int) -> None:
    """Sparse and dense calls in flight together, and a future's callback that computes."""
    size = dist.get_world_size()
    indices = torch.arange(ROWS, device="cuda").unsqueeze(0)
    sparse = [
        torch.sparse_coo_tensor(indices, torch.full((ROWS, WIDTH), float(rank + n), device="cuda")) for n in range(4)
    ]
    dense = [torch.full((1 << 20,), float(rank + n), device="cuda") for n in range(4)]
    works, futures = [], []
    for one, other in zip(sparse, dense, strict=True):
        works.append(dist.all_reduce(one, async_op=True))
        futures.append(works[-1].get_future().then(lambda done: done.value()[0].values() * 2))
        works.append(dist.all_reduce(other, async_op=True))
    doubled = [future.wait() for future in futures]
    for work in works:
        work.wait()
    for n in range(4):
        expected = float(sum(other + n for other in range(size)))
        assert torch.equal(sparse[n].values(), torch.full_like(sparse[n].values(), expected))
        assert torch.equal(doubled[n], torch.full_like(doubled[n], 2 * expected))
        assert torch.equal(dense[n], torch.full_like(dense[n], expected))


@on_ranks("two_gpu_machines")
def test_entries_of_16_bits_are_rounded_once() -> None:
    values = torch.tensor([256.0] + [1.0] * 256, dtype=torch.bfloat16, device="cuda")
    indices = torch.zeros(1, 257, dtype=torch.int64, device="cuda")
    tensor = torch.sparse_coo_tensor(indices, values, (1,))
    dist.all_reduce(tensor)
    assert tensor.values().item() == 512 * dist.get_world_size()


def _bits_of_noise(rank: int) -> list[int]:
    numbers = torch.Generator().manual_seed(rank)
    indices = torch.randint(0, 500, (1, 5000), generator=numbers).cuda()
    values = torch.randn(5000, 16, generator=numbers).to(torch.bfloat16).cuda()
    tensor = torch.sparse_coo_tensor(indices, values, (500, 16))
    dist.all_reduce(tensor)
    return tensor.values().view(torch.int16).flatten().tolist()


def test_all_ranks_get_the_same_bits_in_every_run(two_gpu_machines: Ranks) -> None:
    first = two_gpu_machines.run(_bits_of_noise)
    assert all(one == first[0] for one in first)
    assert two_gpu_machines.run(_bits_of_noise) == first


@on_ranks("two_gpu_machines")
def test_an_index_outside_is_refused_and_the_group_goes_on(rank: int) -> None:
    indices = torch.tensor([[7 if rank == 1 else 1, 1]], device="cuda")
    tensor = torch.sparse_coo_tensor(indices, torch.ones(2, device="cuda"), (3,), check_invariants=False)
    reason = "dimension 0 go from 1 to 7, and there are 3 rows" if rank == 1 else "rank 1 refused"
    with pytest.raises(dist.DistBackendError, match=reason):
        dist.all_reduce(tensor)
    good = torch.sparse_coo_tensor(indices[:, 1:], torch.ones(1, device="cuda"), (3,))
    dist.all_reduce(good)
    assert good.values().item() == 2


@on_ranks("two_gpu_machines")
def test_a_capture_is_refused() -> None:
    tensor = torch.eye(3, device="cuda").to_sparse(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), pytest.raises(ValueError, match="can't be captured in a CUDA graph"):
        dist.all_reduce(tensor)
    dist.all_reduce(tensor)
    assert torch.equal(tensor.to_dense().cpu(), torch.eye(3) * dist.get_world_size())


class _Tables(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 16, sparse=sparse)
        self.tags = nn.EmbeddingBag(50, 16, sparse=sparse, mode="sum")
        self.head = nn.Linear(16, 1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.head(self.words(words).sum(1) + self.tags(words % 50)).sigmoid().mean()
        return loss


def _train(rank: int, kind: str) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model = DistributedDataParallel(_Tables(sparse=kind != "dense").cuda())
    if kind == "fused":
        fairring.sparse.fuse(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = torch.Generator().manual_seed(rank)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randint(1000, (64, 8), generator=numbers).cuda()).backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def test_ddp_trains_sparse_tables_as_dense_ones(two_gpu_machines: Ranks) -> None:
    dense = two_gpu_machines.run(_train, "dense")[0]
    for kind in ("sparse", "fused"):
        parameters = two_gpu_machines.run(_train, kind)
        for pair in zip(parameters[0], parameters[1], strict=True):
            assert torch.equal(*pair), "ranks ended with different parameters"
        for pair in zip(parameters[0], dense, strict=True):
            assert torch.allclose(*pair, rtol=1e-4, atol=1e-6), kind
