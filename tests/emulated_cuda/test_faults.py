"""A call of CUDA or NCCL that fails on one rank: that rank is told which, all others who it was, and nobody hangs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import start
from ranks import Ranks, backend_of

from fairring import _core

pytestmark = [
    pytest.mark.gpu,
    emulated_devices.only_there,
]

LAYOUT = "2x2"
ELEMENTS = 600_000  # three slices
MOST_CALLS = 20


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    ranks = start(LAYOUT)
    yield ranks
    assert ranks.close() == [0] * ranks.size


def _fail(call: str, before: int) -> None:
    """The call of that name, from Fairring's module, once, after so many of them."""
    ctypes.CDLL("libcudart.so.13").cudaEmulatedFail(call.encode(), b"_core", before)


def _error(rank: int, call: str, before: int, at_first: bool) -> str:
    """Of a group in which the call fails on the last rank, in the group's first call or in a later one."""
    group: Any = dist.new_group()
    last = rank == dist.get_world_size() - 1
    tensor = torch.ones(ELEMENTS, device="cuda")
    if not at_first:
        dist.all_reduce(tensor, group=group)
        torch.cuda.synchronize()
        dist.barrier()
    if last:
        _fail(call, before)
    try:
        for _ in range(MOST_CALLS):
            dist.all_reduce(tensor, group=group)
            torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error)
    finally:
        backend_of(group, "cuda").abort()
        torch.cuda.synchronize()
    return ""


def _check(ranks: Ranks, call: str, before: int, at_first: bool, said: str) -> None:
    last = ranks.size - 1
    for error in ranks.run(_error, call, before, at_first):
        assert said in error
        assert f"rank {last}" in error


@pytest.mark.parametrize(
    ("call", "before", "said"),
    [
        ("cudaStreamCreateWithPriority", 0, "cudaStreamCreateWithPriority on CUDA device 3"),
        ("cuFuncLoad", 0, "cuFuncLoad on CUDA device 3"),
        ("ncclCommInitRankConfig", 0, "ncclCommInitRankConfig between the 2 ranks of the machine"),
        ("ncclCommInitRankConfig", 1, "ncclCommInitRankConfig between the 2 ranks of the machine"),
        ("ncclGroupEnd", 0, "ncclReduceScatter between the 2 ranks of the machine"),
        ("ncclGroupEnd", 2, "ncclAllGather between the 2 ranks of the machine"),
    ],
)
def test_what_fails_in_a_groups_first_call_is_told_to_all_ranks(four: Ranks, call: str, before: int, said: str) -> None:
    _check(four, call, before, True, said)


@pytest.mark.parametrize(
    ("call", "before", "said"),
    [
        ("ncclGroupEnd", 1, "ncclAllGather between the 2 ranks of the machine"),
        ("cudaMemcpyAsync", 1, "cudaMemcpyAsync on CUDA device 3"),
        ("cuLaunchKernel", 1, "cuLaunchKernel on CUDA device 3"),
        ("cudaEventRecord", 2, "cudaEventRecord on CUDA device 3"),
        ("cudaStreamWaitEvent", 1, "cudaStreamWaitEvent on CUDA device 3"),
        ("cuStreamWaitValue", 1, "cuStreamWaitValue64 on CUDA device 3"),
        ("cuStreamWriteValue", 1, "cuStreamWriteValue64 on CUDA device 3"),
    ],
)
def test_what_fails_in_a_later_call_is_told_to_all_ranks(four: Ranks, call: str, before: int, said: str) -> None:
    _check(four, call, before, False, said)


def _sum_with_a_device_that_does_not_answer(rank: int) -> tuple[float, int]:
    """The sum in a new group, and the bytes that its rails have carried."""
    if rank == dist.get_world_size() - 1:
        _fail("cudaDeviceGetAttribute", 0)
    group: Any = dist.new_group()
    tensor = torch.ones(ELEMENTS, device="cuda")
    dist.all_reduce(tensor, group=group)
    moved = _core.traffic(backend_of(group, "cuda")) or {}
    return tensor[-1].item(), sum(one["bytes"] for level, one in moved.items() if level > 0)


def test_a_device_that_does_not_answer_leaves_the_groups_calls_to_nccl(four: Ranks) -> None:
    assert four.run(_sum_with_a_device_that_does_not_answer) == [(4.0, 0)] * 4


def _scatter_with_joined_rows(rank: int, refused: bool) -> list[float]:
    """A rank's rows lie at equal distances, and go to staging in one copy if CUDA takes it."""
    size = dist.get_world_size()
    whole = torch.arange(size, device="cuda").repeat_interleave(ELEMENTS) + 10.0 * rank
    part = torch.empty(ELEMENTS, device="cuda")
    if refused:
        _fail("cudaMemcpy2DAsync", 0)
    dist.reduce_scatter_tensor(part, whole)
    torch.cuda.synchronize()
    return sorted(set(part.tolist()))


def test_rows_that_cuda_does_not_copy_at_once_are_copied_one_by_one(four: Ranks) -> None:
    """As where a tensor of torch's expandable segments lies in several allocations."""
    for refused in (False, True):
        sums = [[60.0 + 4 * rank] for rank in range(four.size)]
        assert four.run(_scatter_with_joined_rows, refused) == sums


def _configured(_rank: int) -> list[str]:
    """How Fairring configures its communicators: by default, by a program's options, and beyond what has room."""
    nccl = ctypes.CDLL("libnccl.so.2")
    nccl.ncclEmulatedConfig.restype = ctypes.c_char_p
    configs = []
    for least, most in ((None, None), (2, 4), (None, 64), (12, 16)):
        options: Any = dist.ProcessGroupNCCL.Options()
        if least is not None:
            options.config.min_ctas = least
        if most is not None:
            options.config.max_ctas = most
            options.config.cga_cluster_size = 2
            options.config.traffic_class = 3
            options.config.net_name = "Socket"
        group: Any = dist.new_group(pg_options=options)
        dist.all_reduce(torch.ones(ELEMENTS, device="cuda"), group=group)
        torch.cuda.synchronize()
        configs.append(nccl.ncclEmulatedConfig(b"_core").decode())
        dist.destroy_process_group(group)
    return configs


def test_options_of_nccl_are_for_fairrings_communicators_too(four: Ranks) -> None:
    given = "traffic class 3, network Socket"
    for configs in four.run(_configured):
        assert configs == [
            "cluster none, blocks none to 8, traffic class none, network none",
            f"cluster 2, blocks 2 to 4, {given}",
            f"cluster 2, blocks none to 8, {given}",
            f"cluster 2, blocks 12 to 12, {given}",
        ]


def _sum_without_memory(rank: int, call: str) -> tuple[float, bool]:
    """The sum in a new group, and whether its rails have carried anything."""
    if rank == dist.get_world_size() - 1:
        _fail(call, 0)
    return _sum_in_a_new_group()


def _sum_in_a_new_group() -> tuple[float, bool]:
    group: Any = dist.new_group()
    tensor = torch.ones(ELEMENTS, device="cuda")
    dist.all_reduce(tensor, group=group)
    dist.all_reduce(tensor, group=group)
    total = tensor[-1].item()
    moved = _core.traffic(backend_of(group, "cuda")) or {}
    carries = any(one["bytes"] > 0 for level, one in moved.items() if level > 0)
    dist.destroy_process_group(group)
    return total, carries


def test_a_rank_without_memory_for_staging_leaves_the_groups_calls_to_nccl(four: Ranks) -> None:
    assert four.run(_sum_without_memory, "cudaHostAlloc") == [(16.0, False)] * 4


STAGING_MIB = 64


def _sum_on_a_full_device(rank: int, is_cached: bool) -> tuple[float, bool]:
    """Rank 0's device has less left than staging takes; or torch's cache has it."""
    torch.ones(ELEMENTS, device="cuda")  # leaves a block in torch's cache, so that the sum takes none of the large one
    room = (STAGING_MIB // 2) << 20
    held = [torch.empty(torch.cuda.mem_get_info()[0] - room, dtype=torch.uint8, device="cuda")] if rank == 0 else []
    if is_cached:
        held.clear()
    return _sum_in_a_new_group()


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_full_device_leaves_the_calls_to_nccl_unless_torchs_cache_lets_go(is_cached: bool) -> None:
    ranks = start("2x1", environment={"FAIRRING_TOTAL_MEMORY": f"{STAGING_MIB}MiB", "EMULATED_CUDA_MEMORY_MIB": "512"})
    assert ranks.run(_sum_on_a_full_device, is_cached) == [(4.0, is_cached)] * 2
    assert ranks.close() == [0, 0]
