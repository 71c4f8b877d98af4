"""All-reduces until a machine owns nothing of their sums, or for so many calls; small integers, so sums are exact.

Argument: how many calls at most. Rank 0 prints the shares at the end.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

from fairring.traffic import shares

dist.init_process_group("fairring")
values = torch.arange(25 << 18) % 64 + dist.get_rank()
expected = (torch.arange(25 << 18) % 64) * dist.get_world_size() + sum(range(dist.get_world_size()))
for _ in range(int(sys.argv[1])):
    tensor = values.to(torch.float32)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, expected.to(torch.float32))
    if min(shares(), default=1.0) == 0.0:  # the same on all ranks
        break
if dist.get_rank() == 0:
    print(shares())
dist.destroy_process_group()
