"""Facts that only torch and Fairring's module know. `-m fairring.check.imported torch|module` prints them."""

from __future__ import annotations

import json
import sys
from typing import Any


def torch() -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    replace = sys.modules.get("fairring.replace")  # nothing here imports it but torch itself
    nccl = torch.cuda.nccl.version() if dist.is_available() and dist.is_nccl_available() else ()
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, nccl)),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "gloo_is_ours": bool(replace and dist.is_available() and replace.is_installed()),
    }


def module(peers: int = 1) -> dict[str, Any]:
    """peers: the number of other ranks, each of which needs memory that RDMA devices may reach.

    A setting that can't be used is found elsewhere, and says nothing of the module: the defaults stand in.
    """
    from fairring import _core
    from fairring.config import Config, ConfigError

    try:
        config = Config.from_environment()
    except ConfigError:
        config = Config()
    transport = "ibv" if "ibv" in config.transports else "auto"
    return {
        "instruction_set": _core.instruction_set(),
        "rdma": _core.rdma_devices(transport),
        "rdma_obstacle": _core.rdma_obstacle(transport, peers, config.total_memory),
        "why_no_cuda": _core.why_no_cuda(),
    }


if __name__ == "__main__":
    print(json.dumps({"torch": torch, "module": module}[sys.argv[1]]()))
