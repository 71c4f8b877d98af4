"""Reductions at the edges of torch: lazy views, undefined operations, wrong calls.

random_programs plays every form with every operation and dtype that it has.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, backend_of, on_ranks

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
BITS = ["BAND", "BOR", "BXOR"]
UNDEFINED = [
    *((dtype, name, "view the tensor as integers") for dtype in FLOATS for name in BITS),
    (torch.bool, "AVG", "convert the tensor to a number type"),
    (torch.bool, "PREMUL_SUM", "then take SUM"),
    (torch.int32, "PREMUL_SUM", "then take SUM"),
    (torch.float8_e4m3fn, "SUM", "such as bfloat16"),
    (torch.float8_e5m2, "MAX", "such as bfloat16"),
    (torch.complex64, "PRODUCT", "view_as_real"),
]


def _operation(name: str) -> dist.ReduceOp:
    return dist._make_nccl_premul_sum(2.0) if name == "PREMUL_SUM" else getattr(dist.ReduceOp, name)


def _from_cpp(tensors: list[torch.Tensor], name: str) -> None:
    """As callers in C++ do, without torch's checks in Python."""
    options = dist.AllreduceOptions()
    options.reduceOp = _operation(name)
    dist.distributed_c10d._get_default_group().allreduce(tensors, options).wait()


def _undefined(rank: int, dtype: torch.dtype, name: str) -> str:
    with pytest.raises(RuntimeError) as error:
        _from_cpp([torch.zeros(4, dtype=dtype)], name)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # nothing was sent, nothing is broken
    assert tensor.tolist() == [dist.get_world_size()] * 3, rank
    return str(error.value)


@pytest.mark.parametrize(("dtype", "name", "advice"), UNDEFINED, ids=str)
def test_what_is_not_defined_is_one_error_on_all_ranks_that_says_what_to_do(
    pair: Ranks, dtype: torch.dtype, name: str, advice: str
) -> None:
    texts = pair.run(_undefined, dtype, name)
    assert len(set(texts)) == 1
    assert "not defined for tensors of" in texts[0]
    assert advice in texts[0]


@on_ranks("pair")
def test_of_several_tensors_none_is_sent_when_one_is_not_defined() -> None:
    tensors = [torch.ones(2, dtype=torch.int64), torch.ones(2)]
    options = dist.AllreduceCoalescedOptions()
    options.reduceOp = dist.ReduceOp.BAND
    with pytest.raises(RuntimeError, match="BAND is not defined"):
        dist.distributed_c10d._get_default_group().allreduce_coalesced(tensors, options)
    dist.all_reduce(tensors[0])
    assert tensors[0].tolist() == [2, 2]


@on_ranks("pair")
def test_conjugated_and_negated_views_are_reduced_by_value(rank: int) -> None:
    """Tensors that stand for the conjugate or the negative of their memory, on one rank only.

    Past the dispatcher, which hands copies of such tensors on and so loses the result, on stock backends too.
    """
    backend = backend_of()
    options = dist.AllreduceOptions()
    values = torch.tensor([1 + 2j, 3 - 4j])
    tensor = values.conj() if rank == 0 else values.clone()
    assert tensor.is_conj() == (rank == 0)
    backend.allreduce([tensor], options).wait()
    assert torch.equal(tensor.resolve_conj(), torch.tensor([2 + 0j, 6 + 0j])), tensor
    options.reduceOp = dist.ReduceOp.MAX
    negated = torch.tensor([1 + 2j, 3 - 4j]).conj().imag if rank == 0 else torch.tensor([1.0, -5.0])
    assert negated.is_neg() == (rank == 0)
    backend.allreduce([negated], options).wait()
    assert torch.equal(negated.resolve_neg(), torch.tensor([1.0, 4.0])), negated


@on_ranks("pair")
def test_factors_come_before_the_sum_so_that_large_halves_stay_finite() -> None:
    tensor = torch.full((3,), 60000.0, dtype=torch.float16)
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.5))
    assert tensor.tolist() == [60000.0] * 3


@on_ranks("pair")
def test_a_tensor_that_overlaps_itself_is_refused() -> None:
    with pytest.raises(RuntimeError, match="single memory location"):
        dist.all_reduce(torch.ones(1, dtype=torch.int64).expand(4), op=dist.ReduceOp.MAX)


@on_ranks("pair")
def test_a_tensor_may_stand_twice_in_a_call(rank: int) -> None:
    """In a small call, whose ranks sum everything, and in one that they cut into shards."""
    for elements in (5, 1 << 16):
        tensor = torch.full((elements,), 10.0**rank)
        dist.distributed_c10d._get_default_group().allreduce_coalesced([tensor, tensor, tensor[:3]]).wait()
        assert set(tensor.tolist()) == {11}


@on_ranks("pair")
def test_a_parameters_transpose_is_reduced_in_place() -> None:
    leaf = torch.ones(3, 2, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(leaf.t())
    assert torch.equal(leaf.detach(), torch.full((3, 2), 2.0))


class _Turn(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor([1 + 1j, 2 - 1j]))
        self.scale = torch.nn.Parameter(torch.tensor([2.0]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return ((inputs * self.factor).abs().square() * self.scale).sum()


@on_ranks("pair")
def test_ddp_averages_complex_gradients(rank: int) -> None:
    model = _Turn()
    data = [torch.tensor([1 + 0j, 1j]), torch.tensor([2 + 2j, -3 + 0j])]
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    parallel(data[rank]).backward()
    reference = _Turn()
    for inputs in data:
        (reference(inputs) / 2).backward()
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.allclose(ours.grad, theirs.grad), (ours.grad, theirs.grad)


@on_ranks("three")
def test_the_output_may_be_a_part_of_the_input(rank: int) -> None:
    size = dist.get_world_size()
    whole = torch.arange(4.0 * size)
    output = whole.chunk(size)[rank]
    dist.reduce_scatter_tensor(output, whole)
    expected = torch.arange(4.0 * size)
    expected.chunk(size)[rank].mul_(size)
    assert torch.equal(whole, expected)


@on_ranks("three")
def test_a_wrong_call_is_an_error_that_names_it() -> None:
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
