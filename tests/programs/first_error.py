"""A rank: makes one all_reduce, prints the error that it is told, and ends when all others have been told theirs."""

from datetime import timedelta

import torch
import torch.distributed as dist

import fairring  # noqa: F401


def main() -> None:
    dist.init_process_group("fairring", timeout=timedelta(seconds=60))
    store = dist.distributed_c10d._get_default_store()
    try:
        dist.all_reduce(torch.ones(10))
    except dist.DistBackendError as error:
        print(error, flush=True)
    # Rank 0 holds the store, which the others need to learn why they can't go on.
    store.set(f"told/{dist.get_rank()}", "")
    if dist.get_rank() == 0:
        store.wait([f"told/{rank}" for rank in range(dist.get_world_size())], timedelta(seconds=60))


main()
