"""The reasons on this host to leave calls on CUDA tensors to NCCL under FAIRRING_CUDA=auto, however able the device is.

If NCCL's network reaches the GPUs' own memory, rails from pinned memory are slower than NCCL. With some settings, and
on a GPU that processes share, streams that stand at gates overlap with nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fairring import hardware_queues

INFINIBAND = Path("/sys/class/infiniband")
MODULES = Path("/sys/module")
PEER_MEMORY = ("nvidia_peermem", "nv_peer_mem", "gdrdrv")  # kernel modules by which a network card reads a GPU's memory
DRIVER = Path("/proc/driver/nvidia/version")  # NVIDIA's open kernel module shares a GPU's memory as dma-buf
UNWANTED = {
    "CUDA_LAUNCH_BLOCKING": ("1", "every launch would wait for the network"),
    "NCCL_COMM_BLOCKING": ("1", "nothing could end NCCL's calls in time"),
    "NCCL_LAUNCH_ORDER_IMPLICIT": ("1", "nothing would overlap"),
}


def reason(environment: Mapping[str, str] | None = None) -> str:
    """The reason to leave calls to NCCL here, as one text; empty: there is none."""
    variables = os.environ if environment is None else environment
    for name, (value, effect) in UNWANTED.items():
        if variables.get(name, "").strip() == value:
            return f"{name}={value}, with which {effect}"
    if few := hardware_queues.few():
        return f"CUDA's streams share {few} hardware queues there, so that gates would hold up the program's work"
    if hardware_queues.are_shared_by_processes(variables):
        return "its GPUs are shared by CUDA's MPS, under which gates are not known to work"
    return ""


def fabric() -> str:
    """The first network card that is up and reads GPUs' memory by itself, and how; empty: there is none.

    NCCL is faster over it than pinned rails, but only inside a site.
    """
    cards = sorted(INFINIBAND.iterdir()) if INFINIBAND.is_dir() else []
    reads = [name for name in PEER_MEMORY if (MODULES / name).exists()]
    if "Open Kernel Module" in _text(DRIVER):
        reads.append("dma-buf")
    for card in cards:
        is_up = any("ACTIVE" in _text(state) for state in card.glob("ports/*/state"))
        driver = (card / "device" / "driver").resolve().name
        if is_up and (reads or driver == "efa"):
            return f"{card.name} ({', '.join(reads) or driver})"
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
