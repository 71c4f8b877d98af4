"""A rank: the last one leaves out a call that all others make; they print what they are told."""

from datetime import timedelta

import torch
import torch.distributed as dist

import fairring  # noqa: F401


def main() -> None:
    dist.init_process_group("fairring", timeout=timedelta(seconds=3))
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    dist.all_reduce(torch.ones(10))
    store = dist.distributed_c10d._get_default_store()
    if rank == last:
        store.wait(["others are done"], timedelta(seconds=60))
        store.set("the last one knows", "")
        return
    try:
        dist.all_reduce(torch.ones(77))
    except dist.DistBackendError as error:
        print(error, flush=True)
    if rank == 0:
        store.set("others are done", "")
        store.wait(["the last one knows"], timedelta(seconds=60))


main()
