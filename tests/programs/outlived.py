"""Rank 1 dies while rank 0 does something that never asks Fairring again. FAIRRING_ON_ERROR says what comes of it."""

import os
import threading

import torch
import torch.distributed as dist

dist.init_process_group("fairring")
dist.all_reduce(torch.ones(3))
if dist.get_rank() == 1:
    os._exit(7)
threading.Event().wait()
