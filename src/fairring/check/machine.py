"""Processor, memory and limits of this machine, and a container's share of them. Standard library only."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path
from typing import Any

PROC = Path("/proc")
CPU_INFO = Path("/proc/cpuinfo")
CGROUPS = Path("/sys/fs/cgroup")
SHARED_MEMORY = Path("/dev/shm")
FEATURES = ("avx2", "bmi2", "f16c", "avx512f", "avx512_bf16", "asimd", "sve")  # of x86 and of Arm
UNLIMITED = 1 << 60  # cgroup v1 writes the largest page-aligned number for "max"


def describe() -> dict[str, Any]:
    """Sizes in bytes; None: no limit, or not known."""
    text = CPU_INFO.read_text() if CPU_INFO.exists() else ""
    found = re.search(r"^(?:flags|Features)\s*: (.+)$", text, re.MULTILINE)
    flags = found[1].split() if found else []
    return {
        "processor": processor(),
        "features": [name for name in FEATURES if name in flags],
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "core_quota": core_quota(),
        "load": os.getloadavg()[0],
        "memory": _meminfo("MemTotal"),
        "available_memory": _meminfo("MemAvailable"),
        "memory_limit": of_memory_group("memory.max", "memory.limit_in_bytes"),
        "memory_used_of_limit": of_memory_group("memory.current", "memory.usage_in_bytes"),
        "shared_memory_files": _file_system(SHARED_MEMORY),
        "limits": {
            "open_files": _limits(resource.RLIMIT_NOFILE),
            "locked_memory_bytes": _limits(resource.RLIMIT_MEMLOCK),
            "processes": _limits(resource.RLIMIT_NPROC),
        },
    }


def processor() -> str:
    """The model's name, or the architecture if the system does not give it (aarch64)."""
    match = re.search(r"^model name\s*: (.+)$", CPU_INFO.read_text() if CPU_INFO.exists() else "", re.MULTILINE)
    return match[1] if match else os.uname().machine


def core_quota() -> float | None:
    """Cores that the cgroup of this process may keep busy on average."""
    old = " ".join(_cgroup_file("cpu", f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
    quota, _, period = (_cgroup_file("", "cpu.max") or old).partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def of_memory_group(name: str, old_name: str) -> int | None:
    """A number of the cgroup's memory controller. name: in version 2; old_name: in version 1."""
    text = _cgroup_file("", name) or _cgroup_file("memory", old_name) or ""
    return int(text) if text.isdigit() and int(text) < UNLIMITED else None


def _cgroup_file(controller: str, name: str) -> str | None:
    """The nearest such file, from this process's own cgroup upwards: the root has none. controller: "" in version 2."""
    home = _cgroup(controller)
    mount = CGROUPS / controller
    for folder in (mount / home, *(mount / home).parents):
        try:
            return (folder / name).read_text().strip()
        except OSError:
            if folder == mount:
                break
    return None


def _cgroup(controller: str) -> str:
    """Its path below the mount; "" if the system does not say."""
    file = PROC / "self" / "cgroup"
    for line in file.read_text().splitlines() if file.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.lstrip("/")
    return ""


def _meminfo(name: str) -> int | None:
    file = PROC / "meminfo"
    match = re.search(rf"^{name}:\s*(\d+) kB", file.read_text() if file.exists() else "", re.MULTILINE)
    return int(match[1]) << 10 if match else None


def _file_system(folder: Path) -> dict[str, int] | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return {"size": found.f_frsize * found.f_blocks, "free": found.f_frsize * found.f_bavail}


def _limits(which: int) -> list[int | None]:
    """Soft and hard, in the units of `ulimit`'s system call; None: none."""
    return [None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(which)]
