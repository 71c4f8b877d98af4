"""Three calls under torch.profiler; each rank leaves its profile in the directory that the argument names."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

dist.init_process_group("fairring")
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    for _ in range(3):
        dist.all_reduce(torch.ones(1 << 20))
profiler.export_chrome_trace(str(Path(sys.argv[1]) / f"profile{dist.get_rank()}.json.gz"))
dist.destroy_process_group()
