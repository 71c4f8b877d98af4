"""Reduce-scatters and all-gathers of many slices on CUDA tensors. Prints in how many elements each kind was wrong.

blocks_on_cuda.py ELEMENTS: of each rank's block
"""

from __future__ import annotations

import json
import os
import sys

import torch
import torch.distributed as dist

elements = int(sys.argv[1])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("fairring")
rank, ranks = dist.get_rank(), dist.get_world_size()

# No two slices have the same bytes. Sums are exact in fp32.
places = (torch.arange(ranks * elements, device=device) % 1_000_003).float()
part = torch.empty(elements, device=device)
dist.reduce_scatter_tensor(part, places + rank)
scattered = places.chunk(ranks)[rank] * ranks + sum(range(ranks))
whole = torch.empty_like(places)
dist.all_gather_into_tensor(whole, places.chunk(ranks)[rank] + rank)
gathered = places + torch.arange(ranks, device=device).repeat_interleave(elements)
wrong = {"reduce-scatter": part != scattered, "all-gather": whole != gathered}
print(json.dumps({name: int(places.sum()) for name, places in wrong.items()}))
dist.barrier()
dist.destroy_process_group()
