"""The facts of this rank's machine: interface, RDMA devices, GPUs, limits, versions. Plain values."""

from __future__ import annotations

import os
import platform
import re
import resource
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairring.interfaces import Choice

CPU_INFO = Path("/proc/cpuinfo")
NETWORK = Path("/sys/class/net")
IPV6_OFF = "/proc/sys/net/ipv6/conf/{}/disable_ipv6"
PEER_MEMORY = Path("/sys/module/nvidia_peermem")


def describe(choice: Choice, peers: int) -> dict[str, Any]:
    """choice: of the addresses at which the other ranks reach this one. peers: the number that it might have."""
    import torch

    from fairring import _core, facts

    return {
        "hostname": socket.gethostname(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "memlock": limits(resource.RLIMIT_MEMLOCK)[0],
        "open_files": limits(resource.RLIMIT_NOFILE)[0],
        "addresses": list(choice.addresses),
        "interfaces": [interface(facts.interface_of(address)) for address in choice.addresses],
        "interfaces_by": choice.by,
        "passed_over": list(choice.passed_over),
        "rdma": _core.rdma_devices(),
        "rdma_obstacle": _core.rdma_obstacle(peers),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "gpudirect": PEER_MEMORY.exists(),
        "versions": versions(),
    }


def processor() -> str:
    """The model's name, or the architecture if the system does not give it (aarch64)."""
    match = re.search(r"^model name\s*: (.+)$", CPU_INFO.read_text() if CPU_INFO.exists() else "", re.MULTILINE)
    return match[1] if match else os.uname().machine


def versions() -> dict[str, str]:
    import importlib.metadata

    import torch

    from fairring._modules import DISTRIBUTION

    return {
        "fairring": importlib.metadata.version(DISTRIBUTION),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "linux": platform.release(),
    }


def interface(name: str) -> dict[str, Any]:
    """speed in Mbit/s, None if the system does not say (virtual ones)."""
    home = NETWORK / name if name else Path("/nonexistent")
    off = Path(IPV6_OFF.format(name))
    speed = _number(home / "speed")
    return {
        "name": name,
        "mtu": _number(home / "mtu"),
        "speed": speed if speed and speed > 0 else None,
        "ipv6": off.exists() and off.read_text().strip() == "0",
    }


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def limits(which: int) -> list[int | None]:
    """Soft and hard, in the units of `ulimit`'s system call; None: none."""
    return [None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(which)]
