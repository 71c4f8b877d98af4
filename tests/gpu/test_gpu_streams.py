"""How all_reduce goes together with streams, allocators, graphs and callbacks of the program around it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import start
from ranks import Ranks, on_ranks

pytestmark = pytest.mark.gpu

ELEMENTS = emulated_devices.fewer(5 << 20)


def _busy(tensor: torch.Tensor, rounds: int = 20) -> None:
    """Keeps the current stream at work for a while, without changing the tensor."""
    for _ in range(rounds):
        tensor.add_(1.0).sub_(1.0)


def _expected(turn: int) -> float:
    return float(sum(rank + turn for rank in range(dist.get_world_size())))


@pytest.mark.parametrize("stream", ["default", "side"])
@on_ranks("two_gpu_machines")
def test_the_callers_stream_comes_before_and_after(rank: int, stream: str) -> None:
    where = torch.cuda.Stream() if stream == "side" else torch.cuda.default_stream()
    with torch.cuda.stream(where):
        for turn in range(10):
            tensor = torch.zeros(ELEMENTS, device="cuda")
            _busy(tensor)
            tensor.fill_(float(rank + turn))  # late: whoever reads before it reads zeros
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            seen = tensor.clone()
            tensor.fill_(-1.0)  # whoever writes after this spoils nothing that was seen
            assert torch.equal(seen, torch.full_like(seen, _expected(turn))), turn


def _compute_meanwhile(rank: int) -> None:
    """Rank 1 begins only when rank 0 has computed on the device after its own call."""
    store = dist.distributed_c10d._get_default_store()
    tensor = torch.ones(ELEMENTS, device="cuda")
    torch.ones(100, device="cuda").sum().item()  # warm: to load a kernel may wait for the device
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        result = torch.ones(100, device="cuda").sum()
        assert result.item() == 100
        store.set("computed", "yes")
    else:
        store.wait(["computed"])
        store.delete_key("computed")
        work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert tensor[0].item() == dist.get_world_size()


def test_neither_host_nor_device_stand_still_for_the_network(two_gpu_machines: Ranks) -> None:
    two_gpu_machines.run(_compute_meanwhile)  # warm: what is made at first use waits for all ranks
    two_gpu_machines.run(_compute_meanwhile)


def _free() -> None:
    """To CUDA, not to torch's cache alone."""
    torch.empty(1 << 26, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()


@pytest.mark.parametrize("how", ["synchronize", "empty_cache", "free"])
@on_ranks("two_gpu_machines")
def test_another_thread_may_wait_for_the_device_meanwhile(rank: int, how: str) -> None:
    """One rank calls first, and the other not before a thread of the first's waits for its device: at a shut gate."""
    calls = {"synchronize": torch.cuda.synchronize, "empty_cache": torch.cuda.empty_cache, "free": _free}
    device = torch.cuda.current_device()
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(torch.ones(ELEMENTS, device="cuda"))  # what is made at first use is there

    def wait(begun: str) -> None:
        torch.cuda.set_device(device)  # a thread's own
        store.set(begun, "yes")
        calls[how]()

    for turn in range(6):
        begun = f"{how}/{turn}"
        tensor = torch.full((ELEMENTS,), float(rank + turn), device="cuda")
        torch.cuda.synchronize()
        if rank == turn % 2:
            work = dist.all_reduce(tensor, async_op=True)
            other = threading.Thread(target=wait, args=(begun,))
            other.start()
            work.wait()
            other.join()
        else:
            store.wait([begun])
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
        assert torch.equal(tensor, torch.full_like(tensor, _expected(turn)))


@on_ranks("two_gpu_machines")
def test_works_and_inputs_may_be_dropped_at_once(rank: int) -> None:
    for turn in range(20):
        tensor = torch.full((ELEMENTS,), float(rank + turn), device="cuda")
        dist.all_reduce(tensor, async_op=True)  # nobody waits, and both are dropped at once
        del tensor
        torch.full((ELEMENTS,), -1.0, device="cuda")  # would take its memory
    last = torch.full((ELEMENTS,), float(rank), device="cuda")
    dist.all_reduce(last)
    assert torch.equal(last, torch.full_like(last, _expected(0)))


@on_ranks("two_gpu_machines")
def test_callbacks_of_futures_see_the_result(rank: int) -> None:
    tensor = torch.full((ELEMENTS,), float(rank), device="cuda")
    future = dist.all_reduce(tensor, async_op=True).get_future()
    halved = future.then(lambda done: done.value()[0] / 2)
    assert torch.equal(halved.wait(), torch.full_like(tensor, _expected(0) / 2))


@on_ranks("two_gpu_machines")
def test_a_call_is_captured_in_a_graph_and_replayed(rank: int) -> None:
    tensor = torch.zeros(ELEMENTS, device="cuda")
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)  # NCCL's: its communicator can't be made in a capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(tensor)
    for turn in range(3):
        tensor.fill_(float(rank + turn))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(tensor, torch.full_like(tensor, _expected(turn)))
    del graph


def _capture_meanwhile(rank: int) -> None:
    """Another thread's call begins while this one captures, in the mode that forbids most to all threads."""
    device = torch.cuda.current_device()
    x = torch.ones(1000, device="cuda")
    y = torch.empty_like(x)
    tensor = torch.zeros(ELEMENTS, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.mul(x, 2, out=y)  # warm, as is the next
    dist.all_reduce(tensor)
    tensor.fill_(float(rank))
    torch.cuda.synchronize()

    def reduce() -> dist.Work:
        torch.cuda.set_device(device)
        return dist.all_reduce(tensor, async_op=True)

    graph = torch.cuda.CUDAGraph()
    with ThreadPoolExecutor(1) as other, torch.cuda.stream(side):
        graph.capture_begin(capture_error_mode="global")
        work = other.submit(reduce).result()
        torch.mul(x, 2, out=y)
        graph.capture_end()
    work.wait()
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, x * 2)
    assert torch.equal(tensor, torch.full_like(tensor, _expected(0)))


def test_a_call_is_made_while_another_thread_captures_a_graph() -> None:
    ranks = start("2x2")  # where NCCL, which enqueues from a thread of its own, has a part in the call
    ranks.run(_capture_meanwhile)
    assert ranks.close() == [0] * ranks.size


HARDWARE_QUEUES = [
    pytest.param({"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, id="1"),
    pytest.param({"CUDA_DEVICE_MAX_CONNECTIONS": "8"}, id="8", marks=pytest.mark.slow),
    pytest.param({"CUDA_DEVICE_MAX_CONNECTIONS": "32"}, id="32", marks=pytest.mark.slow),
    pytest.param({"CUDA_LAUNCH_BLOCKING": "1"}, id="blocking launches", marks=pytest.mark.slow),
    pytest.param({"CUDA_MODULE_LOADING": "EAGER"}, id="eager loading", marks=pytest.mark.slow),
    pytest.param({"NCCL_LAUNCH_ORDER_IMPLICIT": "1"}, id="NCCL's order", marks=pytest.mark.slow),
    pytest.param(
        {"NCCL_LAUNCH_ORDER_IMPLICIT": "1", "NCCL_LAUNCH_RACE_FATAL": "1"}, id="NCCL's races", marks=pytest.mark.slow
    ),
]


def _interleaved(rank: int) -> None:
    ranks = dist.get_world_size()
    for turn in range(5):
        buckets = [torch.full((ELEMENTS,), float(rank + turn + number), device="cuda") for number in range(4)]
        works = [dist.all_reduce(bucket, async_op=True) for bucket in buckets[:2]]
        gathered = torch.empty(ranks, device="cuda")
        dist.all_gather_into_tensor(gathered, torch.full((1,), float(rank), device="cuda"))
        works += [dist.all_reduce(bucket, async_op=True) for bucket in buckets[2:]]
        _busy(torch.zeros(ELEMENTS, device="cuda"), 5)
        for work in reversed(works):
            work.wait()
        assert gathered.tolist() == list(range(ranks))
        for number, bucket in enumerate(buckets):
            assert torch.equal(bucket, torch.full_like(bucket, _expected(turn + number)))


@pytest.mark.parametrize("variables", HARDWARE_QUEUES)
@pytest.mark.parametrize("layout", ["2x1", "2x2"])
def test_calls_end_with_any_number_of_hardware_queues(layout: str, variables: dict[str, str]) -> None:
    ranks = start(layout, environment=variables)
    ranks.run(_interleaved)
    assert ranks.close() == [0] * ranks.size
