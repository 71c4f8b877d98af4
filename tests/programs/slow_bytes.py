"""A rank: one all-reduce of so many bytes of fp32, then what this rank sent at each level of it, as JSON."""

import json
import sys
from typing import Any

import torch
import torch.distributed as dist

from fairring import _core, register


def sent() -> dict[int, int]:
    """Bytes by level, so far."""
    group: Any = dist.group.WORLD
    traffic = _core.traffic(group._get_backend(torch.device("cpu"))) or {}
    return {level: counted["bytes"] for level, counted in traffic.items()}


def main() -> None:
    register()
    dist.init_process_group("fairring")
    tensor = torch.ones(int(sys.argv[1]) // 4)
    dist.all_reduce(torch.ones(1))
    before = sent()
    dist.all_reduce(tensor)
    assert (tensor == dist.get_world_size()).all()
    dist.barrier()
    print(json.dumps({level: count - before.get(level, 0) for level, count in sent().items()}))
    dist.destroy_process_group()


main()
