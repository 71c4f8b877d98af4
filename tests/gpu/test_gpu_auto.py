"""FAIRRING_CUDA=auto: who has the calls on CUDA tensors is decided once, by all ranks alike; one no is everybody's."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import machines, start
from ranks import TIMEOUT_SECONDS, init_group
from standard_error import show_infos, standard_error

from fairring import _core, nccls

pytestmark = pytest.mark.gpu

AUTO = {"FAIRRING_CUDA": "auto:64KiB", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
WAY = "all-gathers of CUDA tensors are"
SMALL, LARGE = 1000, 50_000  # elements
LOCKED = {"EMULATED_CUDA_DRIVER_LOCK": "1"}  # while a thread waits in the driver, it calls no functions


def _carried() -> int:
    """Bytes that this rank has sent over the rails so far."""
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))  # type: ignore[union-attr]
    return sum(one["bytes"] for level, one in (_core.traffic(backend) or {}).items() if level > 0)


def _nothing() -> None: ...


def _calls(rank: int, prepare: Callable[[], None] = _nothing) -> tuple[list[bool], list[str]]:
    """Whether the rails carried a small call, a large one, and another of each; and what was logged of the way."""
    were_ours = []
    ranks = dist.get_world_size()
    prepare()
    with standard_error(info=True) as lines:
        dist.all_reduce(
            torch.ones(LARGE, device="cuda")
        )  # the trial comes before it, and what that says is carried too
        torch.cuda.synchronize()
        dist.barrier(device_ids=None)
        for elements in (SMALL, LARGE, SMALL, LARGE):
            before = _carried()
            tensor = torch.full((elements,), rank + 1.0, device="cuda")
            dist.all_reduce(tensor)
            assert torch.equal(tensor, torch.full_like(tensor, ranks * (ranks + 1) / 2))
            were_ours.append(_carried() > before)
    return were_ours, [line.strip() for line in lines if WAY in line]


def test_large_calls_are_fairrings_and_small_ones_nccls() -> None:
    ranks = start("2x1", environment={**AUTO, **LOCKED})
    for were_ours, (way,) in ranks.run(_calls):
        assert were_ours == [False, True, False, True]
        assert f"{WAY} fairring's" in way
    assert ranks.close() == [0, 0]


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


@emulated_devices.only_there
@pytest.mark.parametrize(
    ("prepare", "variables", "reason"),
    [
        (_want_memory, {}, "rank 0 (.*B of device memory: cudaMalloc"),
        (_nothing, {"EMULATED_CUDA_OMIT": "wait_value:_core:0:1"}, "rank 0 (.*streams don't stand at gates"),
        (_nothing, {"EMULATED_CUDA_OMIT": "write_value:_core:0:1"}, "rank 0 (.*the device does not tell how far it is"),
        (_nothing, {"EMULATED_CUDA_OMIT": "kernel:_core:0:1"}, "rank 0 (.*of Float differ from NCCL's"),
        (_take_queues, {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}, "rank 0 (.*with which they share a hardware queue"),
    ],
    ids=["no memory", "no gates", "no words", "wrong sums", "one queue"],
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
    return _carried() > LARGE, tensor[-1].item()  # more than the trial's verdicts


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


def test_what_one_host_has_against_it_leaves_all_calls_to_nccl(tmp_path: Path) -> None:
    (tmp_path / "control").touch()
    ranks = start("2x1", environment=AUTO, of_last={"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)})
    results = ranks.run(_calls)
    assert [were_ours for were_ours, _ in results] == [[False] * 4] * 2
    for _, (way,) in results:
        assert "rank 1 (" in way
        assert "MPS" in way
    assert ranks.close() == [0, 0]


@emulated_devices.only_there
def test_a_device_too_small_for_nccls_kernels_leaves_all_calls_to_nccl() -> None:
    """Kernels of several communicators wait for one another, so all must have room at once."""
    ranks = start("2x2", environment=AUTO, of_last={"EMULATED_CUDA_MULTIPROCESSORS": "16"})
    results = ranks.run(_calls)
    assert [were_ours for were_ours, _ in results] == [[False] * 4] * 4
    for _, (way,) in results:
        assert "rank 3 (" in way
        assert "has 16 multiprocessors" in way
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
    ranks = start("2x1", environment=AUTO)
    assert ranks.run(_called_first_by_two_threads) == [[2.0, 2.0]] * 2
    assert ranks.close() == [0, 0]


def _init_by_a_fabric(rank: int, size: int, port: int) -> None:
    nccls.fabric = lambda: "mlx5_0 (nvidia_peermem)"
    init_group(rank, size, port, "fairring", TIMEOUT_SECONDS)


@pytest.mark.parametrize("sites", [1, 2])
def test_a_fabric_that_reaches_gpus_counts_inside_a_site_alone(sites: int) -> None:
    environment = {**AUTO, "FAIRRING_SITE": "north"}
    ranks = machines("2x1", environment=environment, of_last={"FAIRRING_SITE": "south"} if sites == 2 else None)
    ranks.run(_init_by_a_fabric, ranks.size, ranks.store.port)
    for were_ours, (way,) in ranks.run(_calls):
        assert were_ours == ([False] * 4 if sites == 1 else [False, True, False, True])
        assert ("mlx5_0 (nvidia_peermem)" in way) is (sites == 1)
    assert ranks.close() == [0, 0]
