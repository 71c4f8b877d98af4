"""The C++ module: makes process group backends and ends them. Built from csrc/backend/bindings.cc."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch import Tensor
from torch.distributed import ReduceOp, Store, Work

class MembershipOptions:
    """What a rank brings to a group. Those without a getter in C++ can only be set."""

    name: str
    rank: int
    size: int
    global_ranks: list[int]
    total_memory: int  # bytes
    slice_size: int  # bytes
    heartbeat_timeout: timedelta
    trace_directory: str  # that gets the group's trace when it ends; empty: none
    secret: bytes  # 32, or none: drawn by the group
    tls: tuple[str, str, str]  # files in PEM: certificate, key, authority; RuntimeError says why they can't be used
    machine: str
    site: str
    hostname: str
    addresses: list[str]  # of the interfaces, the first for all but lanes
    site_addresses: list[str]  # of those towards other sites; empty: the same
    network: str  # its network namespace, on one host among many
    interfaces_by: str  # why it listens on `addresses`, for messages
    settings: str
    ports: tuple[int, int]
    cost_rows: list[tuple[float, float, float, float]]  # by level; empty: the built-in ones
    transports: tuple[str, str]  # of rails, between sites: "auto", "tcp", "verbs", or TensorPipe's "uv", "shm", "ibv"
    lanes: tuple[int, int]  # likewise
    helpers: int | None  # threads; None: by the cores
    ranks_here: int  # of the job, on this machine; 0: the launcher does not say
    reconfigurable: bool  # has no members until it is given some by reconfigure()
    devices: bool  # calls on CUDA tensors are the engine's
    devices_on_trial: bool  # and only where a trial of the group says so
    least_on_device: int | None  # bytes of such a call; None: what goes with the two
    stands_for_gloo: bool  # the program asked for Gloo, and finds Gloo's titles in the profiler
    ends_process: bool  # an error of the group
    ends_process_with_device: bool  # the same, if it has made a call on CUDA tensors
    device_machine: str  # of such calls; empty: the same
    device_obstacle: str  # why this rank can't make them; empty: it can
    device_fabric: str  # by which a network reaches its devices' memory without the host's; empty: none does
    # Limits of the NCCL communicators that such calls make: blocks in a cluster, least and most blocks, traffic class,
    # network.
    nccl_limits: tuple[int | None, int | None, int | None, int | None, str]

class FairringBackend:
    """A torch._C._distributed_c10d.Backend."""

    def perform_nocolor_split(self, device: object) -> None: ...

def make_backend(
    store: Store,
    options: MembershipOptions,
    timeout: timedelta,
    make_nccl: Callable[[MembershipOptions, timedelta, int, Store, bool, int], Any] | None,
) -> FairringBackend:
    """Waits for no other rank; raises RuntimeError where it can't listen."""

def all_reduce_between_sites(backend: Any, site_format: str, tensor: Tensor, residual: Tensor, op: ReduceOp) -> Work:
    """SUM or AVG of contiguous fp32 on the CPU; what rounding takes is kept in residual and added the next time."""

def inspect(backend: Any) -> dict[str, Any] | None:
    """What all ranks of a group say of themselves: ranks, transports, rdma_refused. Waits for them; None: one rank."""

def traffic(backend: Any) -> dict[int, dict[str, Any]] | None:
    """Of this rank, by level: messages that carried data, bytes (read at level 0, sent above), and sends.

    The sends are those in which the messages went out, several in one. Moved has rounded and lost. None: not ours.
    """

def trace(backend: Any, calls: int) -> str | None:
    """Of so many of this rank's last calls, in Chrome's trace event format.

    Empty before the first one. None: not ours.
    """

def write_traces(calls: int, program: str = "") -> None:
    """Writes the traces of so many last calls of this process's groups that have a directory for it.

    program: where the main thread stands. RuntimeError where one can't be written.
    """

def device_way(backend: Any) -> str | None:
    """Who carries out the group's calls on CUDA tensors, and why. None: there was no such call, or it is not ours."""

def first_error(backend: Any) -> str | None:
    """What has ended the group of this backend; None: nothing has, or it is not ours."""

def shown_error(text: str) -> tuple[str, list[int]] | None:
    """The kind and the ranks of an error that was shown here as an exception with this text. None: of no such."""

def mark(backend: Any) -> tuple[int, int] | None:
    """How many groups this rank has left, and how many calls it has made in the one it is in. None: not ours."""

def last_complete(backend: Any) -> tuple[tuple[int, int] | None, list[int | None]] | None:
    """The mark that all ranks agreed on when they met, and how many calls were complete on each.

    None: there was nothing to agree on, or the group is not ours. For the mark: this rank comes from elsewhere.
    """

def transports() -> list[str]:
    """Names. "auto" falls back to the first, and of "verbs" and "ibv" takes the one that comes first."""

def rdma_devices(transport: str) -> list[dict[str, str]]:
    """The ports that it could take: name, port, link_layer, interface, rate, gid, obstacle.

    transport: "verbs" or "ibv"; "auto" stands for the one that it takes.
    """

def rdma_obstacle(transport: str, peers: int, total_memory: int) -> str:
    """Why this process can't use RDMA at all, with so many peers and bytes of staging; empty if it can."""

def instruction_set() -> str:
    """That the reducing loops take on this processor: baseline, avx2 or avx512."""

def built_in_rows(rail: str, site: str = "tcp") -> list[tuple[float, float, float, float]]:
    """By level. rail, site: transports, "tcp", "verbs", or TensorPipe's "uv", "shm", "ibv"."""

class PlanQuestion:
    machines: list[str]  # of each rank
    sites: list[str]  # of each rank; empty: they stand in one
    total_memory: int  # bytes
    slice_size: int  # bytes
    rows: list[tuple[float, float, float, float]]  # by level
    bytes: int  # of the call
    site_format: str  # in which it crosses between sites; empty: as it is
    flat: bool  # as if machines never stood in groups

def forecast(question: PlanQuestion) -> list[dict[str, Any]]:
    """Every plan, the best first: steps, slice_bytes, slices, staging_bytes, seconds, levels (messages, bytes)."""

def why_no_cuda() -> str:
    """Why Fairring can do nothing with CUDA tensors itself, with this torch; empty where it can."""

def end_all(failed: bool) -> None:
    """Ends the groups of this process that have not been destroyed. Waits for what their peers still need.

    failed: calls on CUDA tensors are broken off.
    """
