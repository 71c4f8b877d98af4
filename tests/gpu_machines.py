"""Emulated machines on the GPUs of this one.

Ranks take the GPUs in turn, so one is enough: NCCL lets two ranks share a GPU if it takes them for ranks of different
hosts, so each gets a host id of its own, and NCCL speaks over sockets between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import emulated_devices
import torch
from ranks import TIMEOUT_SECONDS, Ranks, backend_of
from versions import LETS_FORKS_USE_CUDA

from fairring import _core, hardware_queues

LAYOUTS = {  # each rank's machine
    "1x8": ["a"] * 8,
    "2x1": ["a", "b"],
    "3x1": ["a", "b", "c"],
    "4x1": ["a", "b", "c", "d"],
    "2x2": ["a", "a", "b", "b"],
    "2x4": ["a"] * 4 + ["b"] * 4,
    "4x2": ["a", "a", "b", "b", "c", "c", "d", "d"],
    "2+1+1": ["a", "a", "b", "c"],
    "3+1+2 in turn": ["a", "b", "c", "a", "c", "a"],
}
_LOOP = "fairring loop"
# On emulated devices, which end the process where the loop calls CUDA.
_EMULATED = {
    "EMULATED_CUDA_KEEP_OFF": _LOOP,
    "FAIRRING_SLICE_SIZE": "1MiB",
    "FAIRRING_TOTAL_MEMORY": "4MiB",
}


def start(
    layout: str,
    backend: str = "fairring",
    timeout_seconds: float = TIMEOUT_SECONDS,
    environment: Mapping[str, str] | None = None,
    of_last: Mapping[str, str] | None = None,
) -> Ranks:
    """As `machines`, with a default group. of_last: variables of the last rank besides."""
    ranks = machines(layout, timeout_seconds, environment, of_last)
    ranks.init(backend, timeout_seconds)
    if backend == "fairring":
        assert all(ranks.run(_has_loop)), f"no thread is named {_LOOP}, so nothing would be kept off CUDA"
    return ranks


def machines(
    layout: str,
    timeout_seconds: float = TIMEOUT_SECONDS,
    environment: Mapping[str, str] | None = None,
    of_last: Mapping[str, str] | None = None,
) -> Ranks:
    """Ranks without a group, each with a device. environment: variables of all.

    On emulated devices they are forked.
    """
    names = LAYOUTS[layout]
    nccl = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}
    emulated = _EMULATED if emulated_devices.ARE_HERE else {}
    shared = {**nccl, **emulated, "FAIRRING_CUDA": "on", "FAIRRING_ON_ERROR": "raise", **(environment or {})}
    own = [{"NCCL_HOSTID": f"rank-{rank}", "FAIRRING_MACHINE": machine} for rank, machine in enumerate(names)]
    own[-1] |= of_last or {}
    forks = emulated_devices.ARE_HERE and LETS_FORKS_USE_CUDA
    ranks = Ranks(len(names), shared, own, max(timeout_seconds, TIMEOUT_SECONDS), forks=forks)
    ranks.run(_take_device)
    return ranks


def _take_device(rank: int) -> None:
    hardware_queues.raise_their_number()  # the process that ranks were forked from had not been told to use CUDA
    torch.cuda.set_device(rank % torch.cuda.device_count())


def _has_loop(_rank: int) -> bool:
    return any(thread.read_text().strip() == _LOOP for thread in Path("/proc/self/task").glob("*/comm"))


def carried(group: Any = None) -> int:
    """Bytes that this rank has sent so far over the rails of the group, or of the default one."""
    moved = _core.traffic(backend_of(group, "cuda")) or {}
    return sum(one["bytes"] for level, one in moved.items() if level > 0)
