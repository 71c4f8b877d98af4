"""The programs of the ranks in the guests. Each prints its findings."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import resource
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from contributions import DTYPES, contribution, expected, same

from fairring import _core, cli
from rdma.cases import BREAK_SECONDS, LARGE_BYTES, OUTAGE_SECONDS, SLICE_BYTES, SPEED, TIMEOUT

PATIENCE = timedelta(minutes=5)
IPC_LOCK = 14  # linux/capability.h
WIRE = "eth0"  # for RDMA
LITTLE_MEMLOCK = 8 << 20  # what many systems allow
MEMLOCK_OF_ONE_GROUP = 100 << 20  # of FAIRRING_TOTAL_MEMORY's default


def sizes_and_dtypes() -> None:
    """Sums of every dtype, and of sizes around the ranks' shards and the slices."""
    _meet()
    rank, world = dist.get_rank(), dist.get_world_size()
    cases, wrong = 0, []
    for dtype in DTYPES:
        slice_elements = SLICE_BYTES // dtype.itemsize
        around = [slice_elements - 1, slice_elements, slice_elements + 1, 5 * slice_elements // 2 + 3]
        for elements in sorted({0, 1, world - 1, world, world + 1, *around}):
            parts = [contribution(other, world, elements, dtype, "SUM") for other in range(world)]
            tensor = parts[rank].clone()
            dist.all_reduce(tensor)
            cases += 1
            if not same(tensor, expected(parts, "SUM")):
                wrong.append(f"{elements} {dtype}")
    print(f"cases {cases} wrong {len(wrong)}", *wrong[:5])
    dist.destroy_process_group()


def in_flight() -> None:
    """Eight calls of 1 MiB at once, and one of 8 MB."""
    _meet()
    rank, world = dist.get_rank(), dist.get_world_size()
    tensors = [torch.arange(1 << 18).remainder(97).add(rank * index).float() for index in range(8)]
    tensors.append(torch.arange(LARGE_BYTES // 4).remainder(89).add(rank).float())
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    ranks = world * (world - 1) // 2
    expected = [torch.arange(1 << 18).remainder(97).mul(world).add(ranks * index).float() for index in range(8)]
    expected.append(torch.arange(LARGE_BYTES // 4).remainder(89).mul(world).add(ranks).float())
    print("wrong", sum(not torch.equal(*pair) for pair in zip(tensors, expected, strict=True)))
    dist.destroy_process_group()


def two_sites() -> None:
    """Calls as in_flight() makes them, and what this rank sent at each level."""
    _meet()
    group: Any = dist.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    dist.all_reduce(torch.ones(1))
    tensors = [torch.arange(1 << 18).remainder(97).add(dist.get_rank() * index).float() for index in range(8)]
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()
    world = dist.get_world_size()
    sums = [torch.arange(1 << 18).remainder(97).mul(world).add(world * (world - 1) // 2 * i).float() for i in range(8)]
    traffic = _core.traffic(backend) or {}
    print("bytes", *(traffic[level]["bytes"] for level in (1, 2)))
    print("wrong", sum(not torch.equal(*pair) for pair in zip(tensors, sums, strict=True)))
    dist.destroy_process_group()


def training() -> None:
    _train({})


def training_across_a_break() -> None:
    """In one of its steps nothing reaches rank 0 until queue pairs have broken."""
    _train({2: BREAK_SECONDS})


def _train(outages: dict[int, float]) -> None:
    """A few data-parallel steps, and a hash of the parameters. By hand: DDP and torch.optim import for minutes here.

    outages: by step, in seconds.
    """
    _meet()
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256), torch.nn.Linear(256, 10)]
    model = torch.nn.Sequential(*layers)
    inputs = torch.Generator().manual_seed(100 + dist.get_rank())
    for step in range(4):
        x = torch.randn(32, 256, generator=inputs)
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(x), x[:, :10].argmax(dim=1)).backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        with _outage(outages[step]) if step in outages else nullcontext(), torch.no_grad():
            works = [dist.all_reduce(gradient, op=dist.ReduceOp.AVG, async_op=True) for gradient in gradients]
            for parameter, gradient, work in zip(model.parameters(), gradients, works, strict=True):
                work.wait()
                parameter.sub_(0.05 * gradient)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print("parameters", digest.hexdigest())
    dist.destroy_process_group()


def check() -> None:
    """`fairring check`, whose report rank 0 prints."""
    assert cli.main(["check", "--json", "--timeout", str(PATIENCE.total_seconds())]) == 0


def speed() -> None:
    """A line for each size: bytes, median seconds of a call, processor seconds of the machine and of this process."""
    _meet()
    for size, calls in SPEED:
        tensor = torch.zeros(size // 4)
        for _ in range(3 if size < LARGE_BYTES else 1):
            dist.all_reduce(tensor)
        times, busy, own = [], _busy_seconds(), time.process_time()
        for _ in range(calls):
            start = time.perf_counter()
            dist.all_reduce(tensor)
            times.append(time.perf_counter() - start)
        spent = (_busy_seconds() - busy) / calls, (time.process_time() - own) / calls
        print("speed", size, statistics.median(times), *spent, flush=True)
    dist.destroy_process_group()


def in_flight_with_smaller_frames() -> None:
    """Rank 1's interface takes frames of Ethernet's usual size, rank 0's larger ones."""
    if os.environ["RANK"] == "1":
        _ip("link", "set", WIRE, "mtu", "1500")
    try:
        in_flight()
    finally:
        _ip("link", "set", WIRE, "mtu", _word("mtu"))


def first_error_on_another_fabric() -> None:
    address = f"10.70.0.{int(_word('machine')) + 1}/24"
    if os.environ["RANK"] == "1":
        _ip("addr", "del", address, "dev", WIRE)
        _ip("addr", "add", "10.72.0.1/24", "dev", WIRE)
    try:
        first_error()
    finally:
        if os.environ["RANK"] == "1":
            _ip("addr", "del", "10.72.0.1/24", "dev", WIRE)
            _ip("addr", "add", address, "brd", "+", "dev", WIRE)


def first_error_where_packets_get_lost() -> None:
    with _packets_lost():
        first_error()


def sum_where_packets_get_lost() -> None:
    with _packets_lost():
        sum_of_ones()


def sum_across_an_outage() -> None:
    """For some seconds of a call nothing reaches rank 0."""
    _meet()
    for _ in range(3):
        dist.all_reduce(torch.ones(1 << 18))
    tensor = torch.arange(1 << 20).remainder(89).add(dist.get_rank()).float()
    start = time.monotonic()
    with _outage(OUTAGE_SECONDS):
        dist.all_reduce(tensor)
    world = dist.get_world_size()
    expected = torch.arange(1 << 20).remainder(89).mul(world).add(world * (world - 1) // 2).float()
    print(f"after {time.monotonic() - start:.2f} s: wrong {int(not torch.equal(tensor, expected))}")
    dist.destroy_process_group()


def sums_of_two_groups_with_memory_for_one() -> None:
    """Both groups are made before either is used, and the second is used first."""
    _lose_memlock(MEMLOCK_OF_ONE_GROUP)
    _meet()
    second: Any = dist.new_group(list(range(dist.get_world_size())))
    for group in (second, None):
        tensor = torch.ones(1 << 20)
        dist.all_reduce(tensor, group=group)
        print("sum", tensor[0].item())
    dist.destroy_process_group()


def sum_without_a_port() -> None:
    if os.environ["RANK"] == "1":
        _ip("link", "set", WIRE, "down")
    sum_of_ones()


def first_error_without_a_port() -> None:
    if os.environ["RANK"] == "1":
        _ip("link", "set", WIRE, "down")
    first_error()


def first_error() -> None:
    _meet()
    _print_error(lambda: dist.all_reduce(torch.ones(10)))
    _part()


def first_error_without_memlock() -> None:
    if os.environ["RANK"] == "1":
        _lose_memlock()
    first_error()


def sum_without_memlock() -> None:
    if os.environ["RANK"] == "1":
        _lose_memlock()
    sum_of_ones()


def sum_of_ones() -> None:
    _meet()
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    print("sum", tensor[0].item())
    dist.destroy_process_group()


def until_the_peer_is_killed() -> None:
    _meet()
    for _ in range(3):
        dist.all_reduce(torch.ones(1 << 18))
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    _print_error(lambda: dist.all_reduce(torch.ones(1 << 20)))


def until_the_device_goes_down() -> None:
    _meet(TIMEOUT)
    for _ in range(3):
        dist.all_reduce(torch.ones(1 << 18))
    if dist.get_rank() == 1:
        _ip("link", "set", WIRE, "down")
    _print_error(lambda: dist.all_reduce(torch.ones(1 << 20)))
    _part()


def _meet(timeout: timedelta = PATIENCE) -> None:
    """Makes the group. The other machine may be minutes behind: the time of the group begins when all are there."""
    rank, world, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    store = dist.TCPStore(os.environ["MASTER_ADDR"], port, world, rank == 0, timeout=PATIENCE)
    dist.init_process_group("fairring", store=store, rank=rank, world_size=world, timeout=timeout)


def _print_error(call: Callable[[], object]) -> None:
    start = time.monotonic()
    try:
        call()
    except dist.DistBackendError as error:
        print(f"after {time.monotonic() - start:.2f} s: {error}", flush=True)
    else:
        print("no error")


def _part() -> None:
    """Rank 0 holds the store, which the other may still need."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"told/{dist.get_rank()}", "")
    if dist.get_rank() == 0:
        store.wait([f"told/{rank}" for rank in range(dist.get_world_size())], PATIENCE)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _word(name: str) -> str:
    """Of the kernel's command line."""
    (found,) = re.findall(rf"\b{name}=(\S+)", Path("/proc/cmdline").read_text())
    return str(found)


def _busy_seconds() -> float:
    """Of all processors since the machine was booted."""
    user, nice, system, _, _, irq, soft = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@contextmanager
def _packets_lost() -> Iterator[None]:
    """Rank 1 sends all that is for rank 0's address to a card that does not exist."""
    address = "10.70.0.1"
    if os.environ["RANK"] == "1":
        _ip("neigh", "replace", address, "lladdr", "52:54:00:00:00:99", "dev", WIRE, "nud", "permanent")
    try:
        yield
    finally:
        if os.environ["RANK"] == "1":
            _ip("neigh", "del", address, "dev", WIRE)


@contextmanager
def _outage(seconds: float) -> Iterator[None]:
    """Ends after so long, whatever happens meanwhile."""
    with ExitStack() as lost:
        lost.enter_context(_packets_lost())
        end = threading.Timer(seconds, lost.pop_all().close)
    end.start()
    try:
        yield
    finally:
        end.join()


def _lose_memlock(limit: int = LITTLE_MEMLOCK) -> None:
    """As in a container: no CAP_IPC_LOCK, and a small limit."""
    libc = ctypes.CDLL(None)
    header, data = _Header(0x20080522, 0), (_Data * 2)()
    assert libc.capget(ctypes.byref(header), data) == 0
    data[0].effective &= ~(1 << IPC_LOCK)
    data[0].permitted &= ~(1 << IPC_LOCK)
    assert libc.capset(ctypes.byref(header), data) == 0
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
