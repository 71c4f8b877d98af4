"""all_reduce of sparse tensors: real processes of one machine over loopback. Rows that a rank lacks count as zeros."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, on_ranks


@on_ranks("three")
def test_large_ones_go_in_slices_beside_other_calls(rank: int) -> None:
    size = dist.get_world_size()
    tensors = []
    for other in range(size):
        numbers = torch.Generator().manual_seed(other)
        indices = torch.randint(0, 200_000, (1, 20_000), generator=numbers)
        values = torch.randint(-9, 9, (20_000, 64), generator=numbers).float()
        tensors.append(torch.sparse_coo_tensor(indices, values, (200_000, 64)))
    tensor = tensors[rank].clone()
    dense = torch.ones(1 << 20)
    works = [dist.all_reduce(tensor, async_op=True), dist.all_reduce(dense, async_op=True)]
    future = works[0].get_future()
    for work in works:
        work.wait()
    assert future.wait()[0] is not None
    assert torch.equal(tensor.to_dense(), torch.stack([one.to_dense() for one in tensors]).sum(0))
    assert torch.equal(dense, torch.full((1 << 20,), float(size)))


@on_ranks("pair")
def test_memory_may_be_laid_out_in_any_way() -> None:
    """Indices and values that are not contiguous, and a tensor that is said to be coalesced and is not."""
    indices = torch.tensor([[3, 1], [0, 0], [0, 1]]).t()
    values = torch.arange(12.0).reshape(4, 3).t()
    tensor = torch.sparse_coo_tensor(indices, values, (4, 2, 4))
    expected = tensor.to_dense() * dist.get_world_size()
    dist.all_reduce(tensor)
    assert torch.equal(tensor.to_dense(), expected)
    unsorted = torch.sparse_coo_tensor(torch.tensor([[2, 1]]), torch.tensor([1.0, 2.0]), (3,))._coalesced_(True)
    dist.all_reduce(unsorted)
    assert unsorted.indices().tolist() == [[1, 2]]


@on_ranks("pair")
def test_only_sums_are_defined() -> None:
    tensor = torch.eye(3).to_sparse()
    with pytest.raises(dist.DistBackendError, match="sparse all_reduce with MAX is not defined"):
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    dist.all_reduce(tensor)


@on_ranks("pair")
def test_an_index_outside_is_refused_and_the_group_goes_on(rank: int) -> None:
    index = 7 if rank == 1 else 1
    tensor = torch.sparse_coo_tensor(torch.tensor([[index]]), torch.ones(1), (3,), check_invariants=False)
    reason = "index 7 in dimension 0, which has 3 rows" if rank == 1 else "rank 1 refused"
    with pytest.raises(dist.DistBackendError, match=reason):
        dist.all_reduce(tensor)
    good = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1), (3,))
    dist.all_reduce(good)
    assert good.values().item() == 2


def _other_shape(rank: int) -> None:
    shape = (4, 6) if rank == 0 else (8, 3)
    with pytest.raises(dist.DistBackendError) as caught:
        dist.all_reduce(torch.zeros(shape).to_sparse(1))
    assert "24 Float32 as 4 x 6, 1 sparse" in str(caught.value)
    assert "24 Float32 as 8 x 3, 1 sparse" in str(caught.value)


def test_shapes_that_differ_are_named(strangers: Ranks) -> None:
    strangers.init()
    strangers.run(_other_shape)


@on_ranks("pair")
def test_ddp_reduces_an_embeddings_sparse_gradient(rank: int) -> None:
    torch.manual_seed(1)
    model = torch.nn.EmbeddingBag(100, 8, sparse=True, mode="sum")
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    words = torch.tensor([[rank, 5, 5], [7, 99 - rank, 5]])
    parallel(words).sum().backward()
    gradient = model.weight.grad
    assert gradient is not None
    assert gradient.is_sparse
    expected = torch.zeros(100, 8)
    size = dist.get_world_size()
    for other in range(size):
        for word in (other, 5, 5, 7, 99 - other, 5):
            expected[word] += 1 / size
    assert torch.allclose(gradient.to_dense(), expected)
