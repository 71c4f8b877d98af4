"""A rank with CUDA tensors gets an error and never hangs when another one dies, is late, or makes another call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import start
from lab_programs import program
from ranks import TIMEOUT_SECONDS

from fairring import lab

pytestmark = pytest.mark.gpu

ELEMENTS = emulated_devices.fewer(5 << 20)
GARBAGE = "what calls on CUDA tensors return is garbage"


def _all_reduce(_rank: int) -> None:
    tensor = torch.ones(ELEMENTS, device="cuda")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()


def _die_in_flight(rank: int) -> str:
    if rank == 1:
        os._exit(3)
    return _error_of_a_call()


def _error_of_a_call() -> str:
    tensor = torch.ones(ELEMENTS, device="cuda")
    try:
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        torch.cuda.synchronize()
        work.wait()  # the device came through its gates; the work knows why
        dist.all_reduce(tensor)
    except (RuntimeError, dist.DistBackendError) as error:
        return str(error)
    return ""


def test_a_peer_that_dies_while_a_call_is_in_flight_is_an_error() -> None:
    ranks = start("2x1", timeout_seconds=60)
    ranks.run(_all_reduce)
    begun = ranks.start(_die_in_flight)
    (text,) = ranks.finish([rank for rank in begun if rank == 0])
    assert "rank 1" in text, text
    ranks.kill()


def _die_before_any_call(rank: int) -> str:
    if rank == 2:
        os._exit(3)
    return _error_of_a_call()


def test_a_peer_that_dies_before_the_first_call_is_an_error() -> None:
    """Rank 3 waits for what rank 2 of its machine would tell it, ranks 0 and 1 for the sums of the other machine."""
    ranks = start("2x2", timeout_seconds=600)  # longer than pytest waits: nobody may wait for that
    begun = ranks.start(_die_before_any_call)
    for text in ranks.finish([rank for rank in begun if rank != 2]):
        assert "rank 2" in text, text
    ranks.kill()


def _error_of_the_first_large_call(rank: int, dies: bool) -> str:
    """NCCL may take another algorithm for it, and connects the machine's ranks again: they wait for rank 1."""
    dist.all_reduce(torch.ones(10, device="cuda"))
    torch.cuda.synchronize()
    dist.barrier()
    if rank == 1:
        return os._exit(3) if dies else ""
    return _error_of_a_call()


@pytest.mark.parametrize(("dies", "blocking"), [(True, "1"), (False, "1"), (False, "0")])
def test_a_peer_that_does_not_come_to_the_first_large_call_is_an_error(dies: bool, blocking: str) -> None:
    environment = {"NCCL_COMM_BLOCKING": blocking}  # of all communicators, whatever Fairring asks for
    ranks = start("2x2", timeout_seconds=600 if dies else 5, environment=environment)
    begun = ranks.start(_error_of_the_first_large_call, dies)
    for text in ranks.finish([rank for rank in begun if rank != 1]):
        assert "rank 1" in text, text
    ranks.kill()


def _logged(rank: int, folder: Path) -> list[str]:
    """What rank 0 has logged of results that are garbage, before its next call and with it."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["called"])
        os._exit(3)
    path = folder / "errors"
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), 2)
    dist.all_reduce(torch.ones(ELEMENTS, device="cuda"))
    store.set("called", "yes")
    while GARBAGE not in path.read_text():
        os.sched_yield()
    torch.cuda.synchronize()
    with pytest.raises((RuntimeError, dist.DistBackendError)):
        dist.all_reduce(torch.ones(ELEMENTS, device="cuda"))
    return [line for line in path.read_text().splitlines() if GARBAGE in line]


def test_the_first_error_is_logged_at_once_and_once(tmp_path: Path) -> None:
    ranks = start("2x1", timeout_seconds=60)
    ranks.run(_all_reduce)
    begun = ranks.start(_logged, tmp_path)
    ((line,),) = ranks.finish([rank for rank in begun if rank == 0])
    assert "[E" in line, "it is no error: where torch logs only these, nobody sees it"
    assert "rank 1" in line
    ranks.kill()


def _results_of_a_broken_call(rank: int, kind: str, dtype: torch.dtype) -> bool:
    """The last rank dies while the others stand in a call: whether all that it gives them is NaN."""
    store = dist.distributed_c10d._get_default_store()
    size = dist.get_world_size()
    dist.all_reduce(torch.ones(ELEMENTS, device="cuda"))
    torch.cuda.synchronize()
    dist.barrier()
    if rank == size - 1:
        store.wait([f"called by {other}" for other in range(size - 1)])
        os._exit(3)
    part = torch.full((ELEMENTS,), 7, device="cuda").to(dtype)
    whole = torch.full((size * ELEMENTS,), 7, device="cuda").to(dtype)
    calls: dict[str, tuple[Any, torch.Tensor]] = {
        "all_reduce": (lambda: dist.all_reduce(part, async_op=True), part),
        "reduce_scatter": (lambda: dist.reduce_scatter_tensor(part, whole, async_op=True), part),
        "all_gather": (lambda: dist.all_gather_into_tensor(whole, part, async_op=True), whole),
    }
    call, result = calls[kind]
    work = call()
    store.set(f"called by {rank}", "yes")
    work.wait()
    parameter = torch.zeros_like(result).sub_(result, alpha=0.1)  # the optimizer
    return bool(parameter.cpu().isnan().all())  # what a program would save


@pytest.mark.parametrize(
    ("layout", "kind", "dtype"),
    [
        ("2x1", "all_reduce", torch.float32),
        ("2x2", "all_reduce", torch.bfloat16),
        ("2x2", "reduce_scatter", torch.float32),
        ("2x2", "all_gather", torch.float32),
    ],
)
def test_floats_of_a_broken_call_are_nan(layout: str, kind: str, dtype: torch.dtype) -> None:
    ranks = start(layout, timeout_seconds=60)
    begun = ranks.start(_results_of_a_broken_call, kind, dtype)
    assert all(ranks.finish(begun[:-1]))
    ranks.kill()


def _call_late(rank: int) -> str:
    return _error_of_a_call() if rank == 0 else ""


def _die_while_a_graph_is_held(rank: int, done: str) -> str:
    """A graph holds the communicator of the NCCL that serves the group. Rank 1 dies while rank 0 is in a call."""
    part = torch.empty(ELEMENTS, device="cuda")
    whole = torch.ones(2 * ELEMENTS, device="cuda")
    dist.reduce_scatter_tensor(part, whole)
    dist.broadcast(part, 0)  # NCCL's
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.reduce_scatter_tensor(part, whole)
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait([done])
        os._exit(3)
    error = ""
    try:
        dist.reduce_scatter_tensor(part, whole)
        store.set(done, "yes")
        for _ in range(2):  # the first only enqueues
            dist.all_gather_into_tensor(whole, part)
            torch.cuda.synchronize()
    except (RuntimeError, dist.DistBackendError) as raised:
        error = str(raised)
    graph.reset()
    dist.destroy_process_group()
    return error


def test_a_peer_that_dies_while_a_graph_holds_nccls_communicator_is_an_error() -> None:
    ranks = start("2x1", timeout_seconds=60)
    begun = ranks.start(_die_while_a_graph_is_held, "called")
    (text,) = ranks.finish([rank for rank in begun if rank == 0])
    assert "rank 1" in text, text
    assert ranks.close() == [0, 3]


def _device_is_usable(_rank: int) -> float:
    return torch.ones(10, device="cuda").sum().item()


def test_the_device_is_usable_after_an_error() -> None:
    ranks = start("2x1", timeout_seconds=10)
    ranks.run(_all_reduce)
    assert ranks.run(_call_late)[0]
    assert ranks.run(_device_is_usable) == [10.0, 10.0]
    ranks.kill()


def _unfinished(*arguments: str) -> lab.LabResult:
    environment = {"FAIRRING_CUDA": "on", "NCCL_IB_DISABLE": "1"}
    command = program("unfinished", *arguments)
    with lab.Lab(command, [1, 1], network="none", env=environment, grace=TIMEOUT_SECONDS) as running:
        result = running.wait(2 * TIMEOUT_SECONDS)
    assert result.exit_codes == [1, 0], result.output
    return result


def test_an_exception_ends_the_process_though_the_device_waits() -> None:
    result = _unfinished()
    assert "a batch without labels" in result.stderr[0]
    assert "rank 0 aborted its process group" in result.stdout[1]


@pytest.mark.slow  # half a minute
def test_a_process_that_exits_breaks_off_what_the_device_waits_for() -> None:
    said = _unfinished("exits").stdout[1]
    assert "rank 0 ended group 0, and its calls on CUDA tensors had not ended 30 s later" in said
