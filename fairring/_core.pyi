"""The C++ module: makes process group backends and ends them. Built from csrc/backend/bindings.cc."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch.distributed import Store

class MembershipOptions:
    """What a rank brings to a group. Those without a getter in C++ can only be set."""

    name: str
    rank: int
    size: int
    global_ranks: list[int]
    total_memory: int  # bytes
    slice_size: int  # bytes
    heartbeat_timeout: timedelta
    secret: bytes  # 32, or none: drawn by the group
    tls: tuple[str, str, str]  # files in PEM: certificate, key, authority; RuntimeError says why they can't be used
    machine: str
    hostname: str
    addresses: list[str]  # of the interfaces, the first for all but lanes
    settings: str
    ports: tuple[int, int]
    cost_rows: list[tuple[float, float, float, float]]  # by level; empty: the built-in ones
    transport: str  # "auto", "tcp", or TensorPipe's "uv", "shm", "ibv"
    lanes: int

def make_backend(
    store: Store,
    options: MembershipOptions,
    timeout: timedelta,
    make_stock: Callable[[MembershipOptions, timedelta, str, int, Store], tuple[Any, list[int]]],
) -> Any:
    """A torch._C._distributed_c10d.Backend. Waits for no other rank; raises RuntimeError where it can't listen."""

def inspect(backend: Any) -> dict[str, Any] | None:
    """What all ranks of a group say of themselves: ranks, transport, rdma_refused. Waits for them; None: one rank."""

def traffic(backend: Any) -> dict[int, dict[str, int]] | None:
    """Of this rank, by level: messages that carried data, bytes (read at level 0, sent above). None: not ours."""

def rdma_devices() -> list[dict[str, str]]:
    """Of this machine: name, driver, link_layer, interface, rate, gid, obstacle."""

def rdma_obstacle(peers: int) -> str:
    """Why this process can't use RDMA with so many peers; empty where it can."""

def built_in_rows(transport: str) -> list[tuple[float, float, float, float]]:
    """By level. transport: "tcp", or TensorPipe's "uv", "shm", "ibv"."""

class PlanQuestion:
    machines: list[str]  # of each rank
    total_memory: int  # bytes
    slice_size: int  # bytes
    rows: list[tuple[float, float, float, float]]  # by level
    bytes: int  # of the call

def forecast(question: PlanQuestion) -> list[dict[str, Any]]:
    """Every plan, the best first: steps, slice_bytes, slices, staging_bytes, seconds, levels (messages, bytes)."""

def epoll_descriptors() -> list[int]:
    """Those of this process."""

def end_all() -> None:
    """Ends the groups of this process that have not been destroyed. Waits for what their peers still need."""
