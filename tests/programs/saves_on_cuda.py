"""Rank 1 dies during the last all-reduce of a step. Rank 0 steps its parameter by what it got and saves it."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

ELEMENTS = 500_000

rank = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("fairring")
gradient = torch.full((ELEMENTS,), 7.0, device="cuda")
dist.all_reduce(gradient)
torch.cuda.synchronize()
dist.barrier()
store = dist.distributed_c10d._get_default_store()
if rank == 1:
    store.wait(["called"])
    os._exit(7)
work = dist.all_reduce(gradient, async_op=True)
store.set("called", "yes")
work.wait()
parameter = torch.zeros_like(gradient).sub_(gradient, alpha=0.1)
torch.save(parameter.cpu(), Path(sys.argv[1]))
print("saved")
