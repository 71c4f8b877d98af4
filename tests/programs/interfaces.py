"""A rank: makes an all_reduce, and prints by what its interfaces were chosen."""

import torch
import torch.distributed as dist

import fairring  # noqa: F401
from fairring import _core

dist.init_process_group("fairring")
total = torch.ones(100_000)
dist.all_reduce(total)
assert total.eq(dist.get_world_size()).all()
seen = _core.inspect(dist.group.WORLD._get_backend(torch.device("cpu")))  # type: ignore[union-attr]
assert seen is not None
print(seen["ranks"][dist.get_rank()]["interfaces_by"], flush=True)
dist.destroy_process_group()
