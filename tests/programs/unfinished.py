"""Rank 0 ends by an exception while the device waits for a call that rank 1 never makes."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent.parent))
import emulated_devices

emulated_devices.load()
torch.cuda.set_device(0)
dist.init_process_group("fairring")
dist.all_reduce(torch.ones(1 << 20, device="cuda"))
torch.cuda.synchronize()
if dist.get_rank() == 0:
    dist.all_reduce(torch.ones(1 << 20, device="cuda"))
    raise ValueError("a batch without labels")
try:
    dist.recv(torch.zeros(1), 0)
except dist.DistBackendError as error:
    print(error)
