"""The reasons on this host to leave calls on CUDA tensors to NCCL under FAIRRING_CUDA=auto, without a trial.

If NCCL's network reaches the GPUs' own memory, or NCCL has a plug-in for a network of its own, rails from pinned memory
are slower than NCCL. With some settings streams that stand at gates overlap with nothing.
"""

from __future__ import annotations

from pathlib import Path

from fairring.config import CudaHost

INFINIBAND = Path("/sys/class/infiniband")
SLINGSHOT = Path("/sys/class/cxi")
MODULES = Path("/sys/module")
PEER_MEMORY = ("nvidia_peermem", "nv_peer_mem", "gdrdrv")  # kernel modules by which a network card reads a GPU's memory
DRIVER = Path("/proc/driver/nvidia/version")  # NVIDIA's open kernel module shares a GPU's memory as dma-buf
LIBRARIES = Path("/etc/ld.so.cache")  # the names of all libraries that the loader finds by itself
PLUGIN = "libnccl-net.so"  # that NCCL loads if there is one
EFFECTS = {
    "CUDA_LAUNCH_BLOCKING": "every launch would wait for the network",
    "NCCL_LAUNCH_ORDER_IMPLICIT": "nothing would overlap",
}


def reason(host: CudaHost) -> str:
    """The first setting with which nothing would overlap; empty: there is none."""
    return f"{host.blocking[0]} is on, with which {EFFECTS[host.blocking[0]]}" if host.blocking else ""


def fabric(host: CudaHost) -> str:
    """NCCL's faster network: its plug-in, or the first card that is up and reads GPUs' memory; empty: there is none.

    It is faster than pinned rails, but only inside a site.
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
    return _plugin(host)


def _plugin(host: CudaHost) -> str:
    if SLINGSHOT.is_dir() and (cards := sorted(SLINGSHOT.iterdir())):
        return f"Slingshot ({cards[0].name})"
    if host.net_plugin.lower() == "none":
        return ""
    if host.net_plugin:
        return f"that of NCCL_NET_PLUGIN={host.net_plugin}"
    folders = [Path(folder) for folder in host.library_path.split(":") if folder]
    found = next((folder / PLUGIN for folder in folders if (folder / PLUGIN).exists()), None)
    if found is None and PLUGIN.encode() in _bytes(LIBRARIES):
        found = Path(PLUGIN)
    return f"that of the plug-in {found}" if found else ""


def _text(path: Path) -> str:
    return _bytes(path).decode(errors="replace")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
