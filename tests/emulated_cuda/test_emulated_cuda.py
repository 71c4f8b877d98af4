"""The emulated devices themselves: torch and NCCL compute right on them, and programs that are wrong are noticed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from ranks import RankError, Ranks, on_ranks
from torch import nn

pytestmark = [
    pytest.mark.gpu,
    emulated_devices.only_there,
]

LATE = {"EMULATED_CUDA_LATE_US": "4000", "EMULATED_CUDA_LATE_ONE_IN": "1"}
NON_BLOCKING = {"TORCH_NCCL_USE_COMM_NONBLOCKING": "1"}
ROUNDS = 20
KEPT_OFF = "a loop"


@pytest.fixture(scope="module")
def program() -> Iterator[Ranks]:
    """One process with four devices."""
    ranks = _started(1)
    yield ranks
    assert ranks.close() == [0]


def _started(size: int, **variables: str) -> Ranks:
    ranks = Ranks(size, {"NCCL_HOSTID": "one", **variables})
    ranks.run(_load)
    return ranks


def _load(rank: int) -> None:
    torch.cuda.set_device(rank)


def _write_errors_to(rank: int, folder: Path) -> None:
    os.dup2(os.open(folder / f"errors of rank {rank}", os.O_WRONLY | os.O_CREAT), 2)


def _errors(folder: Path) -> str:
    return "".join(file.read_text() for file in folder.iterdir())


def _losses(device: str) -> list[float]:
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(5):
        loss = model(torch.randn(32, 8).to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@on_ranks("program")
def test_torch_trains_as_on_the_processor() -> None:
    assert _losses("cuda") == _losses("cpu")


@on_ranks("program")
def test_random_numbers_follow_from_a_devices_seed() -> None:
    """The host sets other seeds before the device has drawn."""
    drawn = []
    for _ in range(2):
        torch.manual_seed(1)
        own = torch.Generator("cuda").manual_seed(1)
        drawn.append([torch.randn(8, device="cuda", generator=generator) for generator in (None, None, own)])
        torch.manual_seed(2)
    (first, second, by_own), again = drawn
    assert all(map(torch.equal, (first, second, by_own), again))
    assert not torch.equal(first, second)
    assert torch.equal(first, by_own)


@on_ranks("program")
def test_attention_is_computed() -> None:
    queries = torch.ones(1, 2, 3, 4, device="cuda", requires_grad=True)
    nn.functional.scaled_dot_product_attention(queries, queries, queries).sum().backward()
    assert queries.grad is not None


@on_ranks("program")
def test_a_graph_is_captured_and_replayed() -> None:
    tensor = torch.zeros(10, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor.add_(1)
    assert tensor.sum().item() == 0, "a capture runs nothing"
    for _ in range(3):
        graph.replay()
    assert tensor.tolist() == [3.0] * 10


@on_ranks("program")
def test_memory_is_taken_and_given_back() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 40, device="cuda")
    before = torch.cuda.mem_get_info()[0]
    tensor = torch.empty(1 << 26, device="cuda")
    assert torch.cuda.mem_get_info()[0] <= before - (1 << 28)
    del tensor
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] == before


def _handed_over(_rank: int, left_out: str) -> int:
    """How many rounds saw something else than what one stream writes, another doubles and the host reads."""
    side, wrong = torch.cuda.Stream(), 0
    torch.zeros(1, device="cuda").add(1).mul_(2).cpu()  # what is loaded first waits for the device
    for turn in range(ROUNDS):
        tensor = torch.zeros(1000, device="cuda")
        torch.cuda.synchronize()
        tensor.add_(turn + 1)
        if left_out != "wait_stream":
            side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            doubled = tensor * 2
            seen = torch.zeros(1000, pin_memory=True)
            seen.copy_(doubled, non_blocking=True)
            if left_out != "record_stream":
                tensor.record_stream(side)
        del tensor
        torch.zeros(1000, device="cuda")  # may take its memory
        if left_out != "synchronize":
            side.synchronize()
        wrong += not torch.equal(seen, torch.full_like(seen, 2.0 * (turn + 1)))
        torch.cuda.synchronize()
    return wrong


@pytest.mark.parametrize("seed", ["1", "2"])
def test_streams_that_are_late_keep_to_events_and_allocators(seed: str) -> None:
    program = _started(1, EMULATED_CUDA_SEED=seed, **LATE)
    assert program.run(_handed_over, "") == [0]
    for left_out in ("wait_stream", "record_stream", "synchronize"):
        assert program.run(_handed_over, left_out)[0] > 0, left_out
    assert program.close() == [0]


def _touch(_rank: int) -> None:
    ctypes.memset(torch.ones(10, device="cuda").data_ptr(), 0, 4)


def _copy_too_much(_rank: int) -> None:
    tensor = torch.ones(4 << 20, device="cuda")  # an allocation of its own
    runtime = ctypes.CDLL("libcudart.so.13")
    host = ctypes.create_string_buffer(64)
    runtime.cudaMemcpy(host, ctypes.c_void_p(tensor.data_ptr() + tensor.nbytes - 32), ctypes.c_size_t(64), 2)


def _call_from_a_stream(_rank: int) -> None:
    torch.ones(1, device="cuda")
    runtime = ctypes.CDLL("libcudart.so.13")
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: runtime.cudaStreamQuery(None))
    runtime.cudaLaunchHostFunc(None, function, None)
    torch.cuda.synchronize()


class Dim3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


def _launch_an_unknown_kernel(_rank: int) -> None:
    """As the code of a CUDA compiler does, for a kernel of the program's own."""
    runtime = ctypes.CDLL("libcudart.so.13")
    kernel = ctypes.create_string_buffer(1)
    nothing = [None] * 5
    getattr(runtime, "__cudaRegisterFunction")(None, kernel, None, b"_Z9strangersPfi", -1, *nothing)
    runtime.cudaLaunchKernel(kernel, Dim3(1, 1, 1), Dim3(1, 1, 1), None, ctypes.c_size_t(0), None)


def _call_from_a_thread_that_is_kept_off(_rank: int) -> None:
    set_name = 15  # of prctl
    ctypes.CDLL(None).prctl(set_name, KEPT_OFF.encode())
    torch.ones(1, device="cuda")


@pytest.mark.parametrize(
    ("function", "code", "said"),
    [
        (_call_from_a_thread_that_is_kept_off, -6, f"was called by a thread named {KEPT_OFF}"),
        (_touch, -11, ""),
        (_copy_too_much, -6, "a copy's source goes over 64 bytes"),
        (_call_from_a_stream, -6, "cudaStreamQuery was called by a function that a stream calls"),
        (_launch_an_unknown_kernel, -6, "no emulation of the kernel strangers(float*, int)"),
    ],
)
def test_what_cuda_forbids_ends_the_process(
    function: Callable[[int], None], code: int, said: str, tmp_path: Path
) -> None:
    program = _started(1, EMULATED_CUDA_KEEP_OFF=KEPT_OFF)
    program.run(_write_errors_to, tmp_path)
    with pytest.raises(RankError, match=f"its process has ended, with code {code}"):
        program.run(function)
    assert said in _errors(tmp_path)


def _call_what_is_not_emulated(_rank: int) -> int:
    call = ctypes.c_void_p()
    look_up = ctypes.CDLL("libcudart.so.13").cudaGetDriverEntryPointByVersion
    look_up(b"cuCtxSynchronize", ctypes.byref(call), 12000, ctypes.c_ulonglong(0), None)
    result: int = ctypes.CFUNCTYPE(ctypes.c_int)(call.value or 0)()
    return result


def _count(_rank: int) -> float:
    return torch.ones(10, device="cuda").sum().item()


def test_a_call_that_is_not_emulated_is_refused_by_name_and_torch_makes_none(tmp_path: Path) -> None:
    not_supported = 801
    program = Ranks(1)
    program.run(_write_errors_to, tmp_path)
    assert program.run(_count) == [10.0]
    assert "emulated CUDA" not in _errors(tmp_path)
    assert program.run(_call_what_is_not_emulated) == [not_supported]
    assert "cuCtxSynchronize was refused: it is not emulated" in _errors(tmp_path)
    assert program.close() == [0]


def _reduce_all(rank: int) -> None:
    ranks = dist.get_world_size()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.uint8):
        tensor = (torch.arange(300_001, device="cuda") % 7 + rank).to(dtype)  # more than one part of shared memory
        expected = (torch.arange(300_001, device="cuda") % 7 * ranks + sum(range(ranks))).to(dtype)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, expected), dtype
    received = torch.empty(70_000, device="cuda")
    sending = [dist.P2POp(dist.isend, torch.full_like(received, float(rank)), (rank + 1) % ranks)]
    for work in dist.batch_isend_irecv([*sending, dist.P2POp(dist.irecv, received, (rank - 1) % ranks)]):
        work.wait()
    assert torch.equal(received, torch.full_like(received, float((rank - 1) % ranks)))


@pytest.mark.parametrize("variables", [{}, LATE, NON_BLOCKING], ids=["plain", "late", "non-blocking"])
def test_torchs_own_group_sums_by_nccl(variables: dict[str, str]) -> None:
    ranks = _started(3, **variables)
    ranks.init("nccl")
    ranks.run(_reduce_all)
    ranks.run(_destroy)
    assert ranks.close() == [0] * 3


def _reduce_other_sizes(rank: int) -> None:
    dist.all_reduce(torch.ones(10 + rank, device="cuda"))
    torch.cuda.synchronize()


def test_calls_of_nccl_that_do_not_match_are_named(tmp_path: Path) -> None:
    ranks = _started(2)
    ranks.run(_write_errors_to, tmp_path)
    ranks.init("nccl")
    with pytest.raises(RankError, match="its process has ended, with code -6"):
        ranks.run(_reduce_other_sizes)
    ranks.kill()
    assert "NCCL: calls that do not match: " in _errors(tmp_path)


def _destroy(_rank: int) -> None:
    dist.destroy_process_group()
