"""The operations of all_reduce at the edges of torch: complex, lazy views, factors, undefined operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

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


def _coalesced_with_one_undefined(_rank: int) -> None:
    tensors = [torch.ones(2, dtype=torch.int64), torch.ones(2)]
    options = dist.AllreduceCoalescedOptions()
    options.reduceOp = dist.ReduceOp.BAND
    with pytest.raises(RuntimeError, match="BAND is not defined"):
        dist.distributed_c10d._get_default_group().allreduce_coalesced(tensors, options)
    dist.all_reduce(tensors[0])
    assert tensors[0].tolist() == [2, 2]


def test_of_several_tensors_none_is_sent_when_one_is_not_defined(pair: Ranks) -> None:
    pair.run(_coalesced_with_one_undefined)


def _complex(rank: int, dtype: torch.dtype, reduce: Callable[[torch.Tensor, str], None]) -> None:
    size = dist.get_world_size()
    for name, factor in (("SUM", 1.0), ("AVG", 1.0 / size), ("PREMUL_SUM", 2.0)):
        tensor = torch.tensor([1 + 2j, -4j, 0.5]).to(dtype) * (rank + 1) * size
        reduce(tensor, name)
        total = sum(range(size + 1)) * size * factor
        assert torch.equal(tensor, (torch.tensor([1 + 2j, -4j, 0.5]) * total).to(dtype)), (name, tensor)


def _by_python(tensor: torch.Tensor, name: str) -> None:
    dist.all_reduce(tensor, op=_operation(name))


def _by_cpp(tensor: torch.Tensor, name: str) -> None:
    _from_cpp([tensor], name)


@pytest.mark.parametrize("reduce", [_by_python, _by_cpp])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_tensors_are_reduced_as_their_parts(
    pair: Ranks, dtype: torch.dtype, reduce: Callable[[torch.Tensor, str], None]
) -> None:
    pair.run(_complex, dtype, reduce)


def _lazy_views(rank: int) -> None:
    """Tensors that stand for the conjugate or the negative of their memory, on one rank only.

    Past the dispatcher, which hands copies of such tensors on and so loses the result, on stock backends too.
    """
    backend: Any = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
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


def test_conjugated_and_negated_views_are_reduced_by_value(pair: Ranks) -> None:
    pair.run(_lazy_views)


def _factors(rank: int, dtype: torch.dtype, as_tensor: bool) -> None:
    factors = [0.5, -3.0, 1.0, 2.0]
    factor = torch.tensor([factors[rank]]) if as_tensor else factors[rank]
    tensor = torch.arange(5).to(dtype)
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor))
    assert torch.equal(tensor, (torch.arange(5) * sum(factors[: dist.get_world_size()])).to(dtype)), tensor


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_rank_has_a_factor_of_its_own(three: Ranks, dtype: torch.dtype, as_tensor: bool) -> None:
    three.run(_factors, dtype, as_tensor)


def _large_halves(_rank: int) -> None:
    tensor = torch.full((3,), 60000.0, dtype=torch.float16)
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.5))
    assert tensor.tolist() == [60000.0] * 3


def test_factors_come_before_the_sum_so_that_large_halves_stay_finite(pair: Ranks) -> None:
    pair.run(_large_halves)


def _truths(_rank: int, name: str) -> list[int]:
    bytes_of_a_bool = torch.tensor([0, 1, 2, 255], dtype=torch.uint8)
    tensor = bytes_of_a_bool.view(torch.bool).clone()
    dist.all_reduce(tensor, op=_operation(name))
    return tensor.view(torch.uint8).tolist()


@pytest.mark.parametrize("name", ["SUM", "PRODUCT", "MIN", "MAX", *BITS])
def test_the_result_of_bools_is_nothing_but_0_and_1(three: Ranks, name: str) -> None:
    assert three.run(_truths, name) == [[0, 1, 1, 1]] * 3


def _overlapping(_rank: int) -> None:
    with pytest.raises(RuntimeError, match="single memory location"):
        dist.all_reduce(torch.ones(1, dtype=torch.int64).expand(4), op=dist.ReduceOp.MAX)


def test_a_tensor_that_overlaps_itself_is_refused(pair: Ranks) -> None:
    pair.run(_overlapping)


def _leaf(_rank: int) -> None:
    leaf = torch.ones(3, 2, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(leaf.t())
    assert torch.equal(leaf.detach(), torch.full((3, 2), 2.0))


def test_a_parameters_transpose_is_reduced_in_place(pair: Ranks) -> None:
    pair.run(_leaf)


class _Turn(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor([1 + 1j, 2 - 1j]))
        self.scale = torch.nn.Parameter(torch.tensor([2.0]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return ((inputs * self.factor).abs().square() * self.scale).sum()


def _complex_ddp(rank: int) -> None:
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


def test_ddp_averages_complex_gradients(pair: Ranks) -> None:
    pair.run(_complex_ddp)
