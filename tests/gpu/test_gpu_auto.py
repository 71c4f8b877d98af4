"""FAIRRING_CUDA=auto: who has the calls on CUDA tensors is decided once, by all ranks alike; one no is everybody's."""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import carried, machines, start
from ranks import TIMEOUT_SECONDS, backend_of, init_group
from standard_error import show_infos, standard_error

import fairring
from fairring import _core, nccls

pytestmark = pytest.mark.gpu

AUTO = {"FAIRRING_CUDA": "auto:64KiB", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
WAY = "all-gathers of CUDA tensors are"
SMALL, LARGE = 1000, 50_000  # elements
# Emulated devices are as fast as the processor, so a test says who is slow. Each call of Fairring's passes two gates.
SLOW_NCCL = {"EMULATED_NCCL_LATE_US": "50000"}
SLOW_RAILS = {"EMULATED_CUDA_GATES_LATE_US": "40000"}
TOO_SLOW = {"EMULATED_CUDA_GATES_LATE_US": "200000"}
LOCKED = {"EMULATED_CUDA_DRIVER_LOCK": "1"}  # while a thread waits in the driver, it calls no functions


def _nothing() -> None: ...


def _calls(rank: int, prepare: Callable[[], None] = _nothing) -> tuple[list[bool], list[str]]:
    """Whether the rails carried a small call, a large one, and another of each; and what was logged of the way."""
    were_ours = []
    ranks = dist.get_world_size()
    prepare()
    with standard_error(info=True) as lines:
        dist.all_reduce(torch.ones(LARGE, device="cuda"))  # the trial comes before it, and its answers are carried too
        torch.cuda.synchronize()
        dist.barrier(device_ids=None)
        for elements in (SMALL, LARGE, SMALL, LARGE):
            before = carried()
            tensor = torch.full((elements,), rank + 1.0, device="cuda")
            dist.all_reduce(tensor)
            assert torch.equal(tensor, torch.full_like(tensor, ranks * (ranks + 1) / 2))
            were_ours.append(carried() > before)
    return were_ours, [line.strip() for line in lines if WAY in line]


def _second_group(_rank: int) -> tuple[str, str, int]:
    """What this rank says of the world's calls and of another group's of the same ranks, and what became of a sum."""
    group: Any = dist.new_group(backend="fairring")
    tensor = torch.ones(LARGE, device="cuda")
    dist.all_reduce(tensor, group=group)
    first, second = (_core.device_way(backend_of(one, "cuda")) or "" for one in (None, group))
    assert fairring.why(group).endswith(f"\n{second}")
    return first, second, int(tensor[-1].item())


@emulated_devices.only_there
def test_calls_are_fairrings_where_nccl_is_slow_and_other_groups_learn_of_it() -> None:
    ranks = start("2x1", environment={**AUTO, **LOCKED, **SLOW_NCCL})
    for were_ours, (way,) in ranks.run(_calls):
        assert were_ours == [False, True, False, True]
        assert f"{WAY} fairring's" in way
        assert re.search(r"all-reduce Fairring's from 64 KiB: 64 KiB \d+ to \d+ us alone \(\d+\.\d\d\) and \d+ to", way)
    for first, second, total in ranks.run(_second_group):
        assert "; measured in" in first
        assert second.endswith("for a group of this layout before")
        assert total == 2
    assert ranks.close() == [0, 0]


@emulated_devices.only_there
@pytest.mark.parametrize(
    ("of_all", "of_last", "words"),
    [
        (
            {},
            SLOW_RAILS,
            "the trial did not show Fairring faster; by a trial, NCCL's time to Fairring's: all-reduce NCCL's:",
        ),
        (TOO_SLOW, {}, "calls of 65536 bytes are too slow to be measured within 5 s: six of them took"),
    ],
    ids=["one rank is slow", "all are too slow"],
)
def test_calls_are_nccls_where_one_rank_or_all_are_slow(
    of_all: dict[str, str], of_last: dict[str, str], words: str
) -> None:
    ranks = start("2x1", environment={**AUTO, **of_all}, of_last=of_last)
    begun = time.monotonic()
    results = ranks.run(_calls)
    seconds = time.monotonic() - begun
    for were_ours, (way,) in results:
        assert were_ours == [False] * 4
        assert f"{WAY} NCCL's as a whole: {words}" in way
    # The first calls take some three seconds there, and all that would be measured twelve times 1.2.
    assert seconds < 15 or not of_all
    assert ranks.close() == [0, 0]


def _first_call(_rank: int) -> tuple[str, list[str], float]:
    """What is said of the group's calls, what is logged, and the sum; Fairring calls neither CUDA nor NCCL."""
    runtime = ctypes.CDLL("libcudart.so.13")
    runtime.cudaEmulatedCounts.restype = ctypes.c_char_p
    runtime.cudaEmulatedCount()
    with standard_error(info=True) as lines:
        tensor = torch.ones(LARGE, device="cuda")
        dist.all_reduce(tensor)
        total = tensor[-1].item()
    assert runtime.cudaEmulatedCounts(b"_core") == b""
    assert runtime.cudaEmulatedCounts(b"torch") != b""
    way = _core.device_way(backend_of(device="cuda"))
    assert way is not None
    assert fairring.why().endswith(f"\n{way}")
    return way, [line for line in lines if "fairring" in line], total


@emulated_devices.only_there
def test_one_machine_makes_nothing_and_says_nothing() -> None:
    ranks = start("1x8", environment=AUTO)
    for way, lines, total in ranks.run(_first_call):
        assert f"{WAY} NCCL's as a whole: all ranks are on one machine" in way
        assert lines == []
        assert total == 8.0
    assert ranks.close() == [0] * 8


def _take_queues() -> None:
    """Of 32, so that the default stream has one that a stream of Fairring's will share."""
    torch.zeros(1, device="cuda")
    for _ in range(29):
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.zeros(1, device="cuda")
    torch.cuda.synchronize()


def _want_memory() -> None:
    """The trial's own device memory is not there. Before it takes any it allocates some at a shut gate."""
    ctypes.CDLL("libcudart.so.13").cudaEmulatedFail(b"cudaMalloc", b"_core", 1)


def _fail_a_copy_of_rank_1() -> None:
    """In the trial's first calls, behind the copies at gates. Rank 0 has to make all of NCCL's calls all the same."""
    if dist.get_rank() == 1:
        ctypes.CDLL("libcudart.so.13").cudaEmulatedFail(b"cudaMemcpyAsync", b"_core", 14)


@emulated_devices.only_there
@pytest.mark.parametrize(
    ("prepare", "variables", "reason"),
    [
        (_want_memory, {}, "rank 0 (.*B of device memory: cudaMalloc"),
        (_nothing, {"EMULATED_CUDA_OMIT": "wait_value:_core:0:1"}, "rank 0 (.*streams don't stand at gates"),
        (_nothing, {"EMULATED_CUDA_OMIT": "write_value:_core:0:1"}, "rank 0 (.*the device does not tell how far it is"),
        (_nothing, {"EMULATED_CUDA_OMIT": "kernel:_core:0:1"}, "rank 0 (.*of BFloat16 differ from NCCL's"),
        (_fail_a_copy_of_rank_1, {}, "rank 0 (.*cudaMemcpyAsync on CUDA device 1"),
        (_take_queues, {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}, "rank 0 (.*with which they share a hardware queue"),
    ],
    ids=["no memory", "no gates", "no words", "wrong sums", "a copy of one rank", "one queue"],
)
def test_a_trial_that_fails_leaves_all_calls_to_nccl_and_says_why(
    prepare: Callable[[], None], variables: dict[str, str], reason: str
) -> None:
    ranks = start("2x1", environment={**AUTO, **variables})
    results = ranks.run(_calls, prepare)
    assert [were_ours for were_ours, _ in results] == [[False] * 4] * 2
    who, what = reason.split(".*")
    for _, (way,) in results:
        assert f"{WAY} NCCL's as a whole: {who}" in way
        assert what in way
        assert "[I" in way, "nobody asked, so nobody needs to be warned"
    assert ranks.close() == [0, 0]


def _call_while_busy(rank: int, errors: Path) -> tuple[bool, float]:
    """Rank 1's device is at work until rank 0 has said who has the calls. Whether the rails carried it, and its sum."""
    if rank == 0:
        show_infos()
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)

    def last_until_said(_: None) -> None:
        while not errors.exists() or WAY not in errors.read_text():
            os.sched_yield()

    work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(last_until_said)
    tensor = torch.ones(LARGE, device="cuda")
    if rank == 1:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        ctypes.CDLL("libcudart.so.13").cudaLaunchHostFunc(stream, work, None)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    return carried() > LARGE, tensor[-1].item()  # more than the trial's verdicts


@emulated_devices.only_there
def test_a_device_that_stays_busy_leaves_all_calls_to_nccl(tmp_path: Path) -> None:
    nobody_waits = {"EMULATED_CUDA_ALLOCATIONS_WAIT": "0", "EMULATED_CUDA_LOADS_WAIT": "0"}
    ranks = start("2x1", timeout_seconds=8, environment={**AUTO, **nobody_waits})
    errors = tmp_path / "errors of rank 0"
    assert ranks.run(_call_while_busy, errors) == [(False, 2.0)] * 2
    (way,) = [line for line in errors.read_text().splitlines() if WAY in line]
    assert "rank 1 (" in way
    assert "the device was busy with earlier work of the program's for 4000 ms" in way
    assert ranks.close() == [0, 0]


def _end_during_the_trial(rank: int, end: str) -> str:
    """Rank 1's device is at work, so its trial waits, and meanwhile another thread ends the group or the process."""
    runtime = ctypes.CDLL("libcudart.so.13")
    runtime.cudaEmulatedCounts.restype = ctypes.c_char_p
    over = threading.Event()
    work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: over.wait() and None)
    tensor = torch.ones(LARGE, device="cuda")

    def act() -> None:
        while b"cudaEventQuery" not in runtime.cudaEmulatedCounts(b"torch"):  # of the trial, again and again
            runtime.cudaEmulatedCount()
            for _ in range(1000):
                os.sched_yield()
        if end == "exit":
            os._exit(1)
        backend_of(device="cuda").abort()
        over.set()

    if rank == 1:
        runtime.cudaLaunchHostFunc(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), work, None)
        threading.Thread(target=act).start()
    with pytest.raises(RuntimeError) as raised:
        dist.all_reduce(tensor)
    return str(raised.value)


@emulated_devices.only_there
def test_a_group_that_is_aborted_during_its_trial_raises() -> None:
    ranks = start("2x1", environment={**AUTO, "EMULATED_CUDA_ALLOCATIONS_WAIT": "0", "EMULATED_CUDA_LOADS_WAIT": "0"})
    for error in ranks.run(_end_during_the_trial, "abort"):
        assert "rank 1" in error
    ranks.close()


@emulated_devices.only_there
def test_a_rank_that_dies_during_a_trial_is_named() -> None:
    nobody_waits = {"EMULATED_CUDA_ALLOCATIONS_WAIT": "0", "EMULATED_CUDA_LOADS_WAIT": "0"}
    ranks = start("2x1", timeout_seconds=60, environment={**AUTO, **nobody_waits})
    begun = time.monotonic()
    survivor, dead = ranks.outcomes(ranks.start(_end_during_the_trial, "exit"))
    assert dead.word == "died"
    assert "rank 1" in survivor.result
    assert "died" in survivor.result
    assert time.monotonic() - begun < 60, "it would wait longer for an answer"
    ranks.kill()


@emulated_devices.only_there
@pytest.mark.parametrize(
    ("of_all", "of_last", "words"),
    [
        ({}, {"NCCL_NET_PLUGIN": "aws-ofi"}, "faster than the host's memory: that of NCCL_NET_PLUGIN=aws-ofi"),
        ({}, {"CUDA_LAUNCH_BLOCKING": "1"}, "CUDA_LAUNCH_BLOCKING is on"),
        # In the place of ibv, which needs cards: rails of TensorPipe's.
        ({"FAIRRING_TRANSPORT": "tensorpipe:shm"}, {}, "its rails would take shm, which NCCL takes without"),
    ],
    ids=["a plug-in", "blocking launches", "RDMA rails"],
)
def test_what_hosts_have_against_it_leaves_all_calls_to_nccl_without_a_trial(
    of_all: dict[str, str], of_last: dict[str, str], words: str
) -> None:
    ranks = start("2x1", environment={**AUTO, **of_all}, of_last=of_last)
    for way, lines, total in ranks.run(_first_call):
        assert ("rank 1 (" in way) == bool(of_last)
        assert words in way
        assert ["[I" in line for line in lines] == [True]
        assert total == 2.0
    assert ranks.close() == [0, 0]


@emulated_devices.only_there
@pytest.mark.parametrize(
    ("of_last", "words"),
    [
        # Kernels of several communicators wait for one another, so all must have room at once.
        ({"EMULATED_CUDA_MULTIPROCESSORS": "16"}, "has 16 multiprocessors"),
        ({"EMULATED_CUDA_GENERATION": "7"}, "sm_70"),
    ],
    ids=["a seventh of a GPU by MIG", "an old GPU"],
)
def test_a_device_that_can_not_leaves_all_calls_to_nccl(of_last: dict[str, str], words: str) -> None:
    ranks = start("2x2", environment=AUTO, of_last=of_last)
    results = ranks.run(_calls)
    assert [were_ours for were_ours, _ in results] == [[False] * 4] * 4
    for _, (way,) in results:
        assert "rank 3 (" in way
        assert words in way
    assert ranks.close() == [0] * 4


def _called_first_by_two_threads(_rank: int) -> list[float]:
    """The sums of two calls that are alike, so their order does not matter."""
    tensors = [torch.ones(LARGE, device="cuda") for _ in range(2)]
    torch.cuda.synchronize()
    together = threading.Barrier(len(tensors))

    def call(tensor: torch.Tensor) -> None:
        torch.cuda.set_device(tensor.device)
        together.wait()
        dist.all_reduce(tensor)
        torch.cuda.synchronize()

    with ThreadPoolExecutor(len(tensors)) as pool:
        list(pool.map(call, tensors))
    return [tensor.sum().item() / LARGE for tensor in tensors]


def test_threads_whose_calls_come_first_share_a_trial() -> None:
    ranks = start("2x1", environment={**AUTO, **SLOW_NCCL})
    assert ranks.run(_called_first_by_two_threads) == [[2.0, 2.0]] * 2
    assert ranks.close() == [0, 0]


def _second_group_without_a_kernel(rank: int) -> tuple[str, float]:
    """A group of the same ranks whose accelerator can't be made on rank 1."""
    group: Any = dist.new_group(backend="fairring")
    if rank == 1:
        ctypes.CDLL("libcudart.so.13").cudaEmulatedFail(b"cuFuncLoad", b"_core", 0)
    tensor = torch.ones(LARGE, device="cuda")
    dist.all_reduce(tensor, group=group)
    return _core.device_way(backend_of(group, "cuda")) or "", tensor[-1].item()


@emulated_devices.only_there
def test_an_accelerator_that_can_not_be_made_is_a_verdict_where_one_is_remembered_too() -> None:
    ranks = start("2x1", environment={**AUTO, **SLOW_NCCL})
    for were_ours, _ in ranks.run(_calls):
        assert were_ours == [False, True, False, True]
    for way, total in ranks.run(_second_group_without_a_kernel):
        assert f"{WAY} NCCL's as a whole: rank " in way
        assert "cuFuncLoad on CUDA device 1" in way
        assert total == 2.0
    assert ranks.close() == [0, 0]


def _small_call(_rank: int) -> tuple[float, str, str | None]:
    """Its sum, Fairring's calls of CUDA, and what was decided."""
    runtime = ctypes.CDLL("libcudart.so.13")
    runtime.cudaEmulatedCounts.restype = ctypes.c_char_p
    tensor = torch.ones(SMALL, device="cuda")
    runtime.cudaEmulatedCount()
    dist.all_reduce(tensor)
    total = tensor.sum().item()
    return total, runtime.cudaEmulatedCounts(b"_core").decode(), _core.device_way(backend_of(device="cuda"))


@emulated_devices.only_there
def test_calls_that_are_too_small_for_a_trial_ask_nobody() -> None:
    """Else they would wait for all ranks, where NCCL's call returns at once."""
    ranks = start("2x1", environment=AUTO)
    for total, calls, way in ranks.run(_small_call):
        assert total == 2.0 * SMALL
        assert "cudaGetDeviceCount" not in calls
        assert not way
    assert ranks.close() == [0, 0]


def _first_call_while_a_message_is_awaited(rank: int) -> tuple[float, float, str]:
    """What comes of the call, and of the message, which the other rank sends behind the call."""
    there = 1 - rank
    ways: list[Any] = [dist.new_group(backend="fairring") for _ in range(2)]  # of messages to rank 0, and to rank 1
    for receiver, group in enumerate(ways):
        message = torch.zeros(1, device="cuda")
        dist.recv(message, there, group=group) if rank == receiver else dist.send(message, there, group=group)
    dist.all_reduce(torch.ones(SMALL, device="cuda"))
    torch.cuda.synchronize()
    received: Any = dist.irecv(message, there, group=ways[rank])
    tensor = torch.ones(LARGE, device="cuda")
    dist.all_reduce(tensor)
    dist.send(torch.full((1,), 5.0, device="cuda"), there, group=ways[there])
    received.wait()
    return message.item(), tensor[-1].item(), _core.device_way(backend_of(device="cuda")) or ""


@emulated_devices.only_there
def test_a_trial_is_not_begun_while_a_call_of_the_programs_waits_for_another_rank() -> None:
    """Memory that is allocated or freed waits for the device, and the device for what comes behind the trial."""
    ranks = start("2x1", timeout_seconds=8, environment=AUTO)
    for message, total, way in ranks.run(_first_call_while_a_message_is_awaited):
        assert (message, total) == (5.0, 2.0)
        assert "the device was busy with earlier work of the program's for 4000 ms" in way
    assert ranks.close() == [0, 0]


def _init_by_a_fabric(rank: int, size: int, port: int) -> None:
    mock.patch.object(nccls, "fabric", return_value="mlx5_0 (nvidia_peermem)").start()
    init_group(rank, size, port, "fairring", TIMEOUT_SECONDS)


@emulated_devices.only_there
@pytest.mark.parametrize("mps", [False, True])
def test_several_sites_are_tried_whatever_reaches_the_gpus_inside_them(tmp_path: Path, mps: bool) -> None:
    """With MPS, too, where there are only CUDA's own eight queues."""
    variables = {"FAIRRING_SITE": "north", "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    if mps:
        (tmp_path / "control").touch()
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "8"
    ranks = machines("2x1", environment={**AUTO, **SLOW_NCCL, **variables}, of_last={"FAIRRING_SITE": "south"})
    ranks.run(_init_by_a_fabric, ranks.size, ranks.store.port)
    for were_ours, (way,) in ranks.run(_calls):
        assert were_ours == [False, True, False, True], way
    assert ranks.close() == [0, 0]
