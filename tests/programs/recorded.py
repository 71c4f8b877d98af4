"""A few calls; then each rank saves its own trace in the directory that the argument names."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

import fairring

dist.init_process_group("fairring")
for _ in range(4):
    dist.all_reduce(torch.ones(10))
fairring.save_trace(sys.argv[1])
dist.destroy_process_group()
