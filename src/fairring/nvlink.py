"""The NVLink domain of this machine's GPUs: GPUs of one domain reach each other by NVLink, even on different hosts.

The answer comes from NVML, the library of NVIDIA's driver. It is asked about all GPUs that it shows, not only the one
that this rank uses, so that all ranks of a machine get one answer, and no rank begins to use a device.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator

LIBRARY = "libnvidia-ml.so.1"
SUCCESS = 0
FABRIC_COMPLETED = 3  # nvmlGpuFabricState_t: the GPU has been registered with its domain
BYTES_OF_ID = 16


class _FabricInfo(ctypes.Structure):
    """NVML's nvmlGpuFabricInfo_v2_t."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("cluster", ctypes.c_ubyte * BYTES_OF_ID),
        ("status", ctypes.c_int),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
        ("health_mask", ctypes.c_uint),
    ]


VERSION = ctypes.sizeof(_FabricInfo) | 2 << 24  # as NVML numbers its structures


@functools.cache
def domain() -> str:
    """Equal on two machines if and only if their GPUs are in one domain; empty if they are in none that has a name.

    Also empty if NVML is missing or too old to tell, or if there are GPUs of several domains.
    """
    try:
        nvml = ctypes.CDLL(LIBRARY)
        begun = nvml.nvmlInit_v2() == SUCCESS
    except (OSError, AttributeError):
        return ""
    if not begun:
        return ""
    try:
        names = set(_domains(nvml))
    except AttributeError:  # a call that this version lacks
        return ""
    finally:
        nvml.nvmlShutdown()
    return names.pop() if len(names) == 1 else ""


def _domains(nvml: ctypes.CDLL) -> Iterator[str]:
    count = ctypes.c_uint(0)
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != SUCCESS:
        return
    for index in range(count.value):
        device = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == SUCCESS:  # else it is not for us
            yield _domain_of(nvml, device)


def _domain_of(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> str:
    info = _FabricInfo(version=VERSION)
    known = nvml.nvmlDeviceGetGpuFabricInfoV(device, ctypes.byref(info)) == SUCCESS
    # With NVSwitches inside one host the cluster is all zeros: it has no name that other hosts could share.
    if not known or info.state != FABRIC_COMPLETED or info.status != SUCCESS or not any(info.cluster):
        return ""
    return f"nvlink-{bytes(info.cluster).hex()}-{info.clique}"
