"""Rank 0 ends by an exception, or by sys.exit(1), while the device waits for a call that rank 1 never makes."""

import sys

import torch
import torch.distributed as dist

import fairring  # noqa: F401  registers the backend on torch before 2.15

torch.cuda.set_device(0)
dist.init_process_group("fairring")
dist.all_reduce(torch.ones(1 << 20, device="cuda"))
torch.cuda.synchronize()
if dist.get_rank() == 0:
    dist.all_reduce(torch.ones(1 << 20, device="cuda"))
    if sys.argv[1:] == ["exits"]:
        sys.exit(1)
    raise ValueError("a batch without labels")
try:
    dist.recv(torch.zeros(1), 0)
except dist.DistBackendError as error:
    print(error)
