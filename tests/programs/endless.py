"""A rank: all-reduces until it fails, then prints why and after how long, and stays until it is killed.

If it ended, the others might hear of its end first.
"""

import signal
import time

import torch
import torch.distributed as dist

import fairring  # noqa: F401


def main() -> None:
    dist.init_process_group("fairring")
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    print("ready", flush=True)
    while True:
        called = time.monotonic()
        try:
            dist.all_reduce(torch.ones(3_000_000))
        except dist.DistBackendError as error:
            print(f"after {time.monotonic() - called:.2f} s: {error}", flush=True)
            signal.pause()


main()
