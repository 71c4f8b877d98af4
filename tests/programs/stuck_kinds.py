"""Four ranks, of which the last stands still for ever before what the argument names, while the others wait for it.

It prints "holds: " and that name when it stands. A message: the others receive it. A receive: they send to it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist

CULPRIT = 3
TAG = 7
LARGE = torch.ones(1 << 20)  # a message that waits for its receiver


def use_later_group() -> None:
    group = dist.new_group()
    assert isinstance(group, dist.ProcessGroup)
    dist.barrier(group)


WAITING: dict[str, Callable[[], object]] = {
    "call": lambda: dist.all_reduce(torch.ones(10)),
    "message": lambda: dist.recv(torch.empty(10), src=CULPRIT, tag=TAG),
    "receive": lambda: dist.send(LARGE, CULPRIT, tag=TAG),
    "later group": use_later_group,
}


def stand(before: str) -> None:
    print(f"holds: {before}", flush=True)
    while True:
        signal.pause()


def main() -> None:
    before = sys.argv[1]
    is_culprit = int(os.environ["RANK"]) == CULPRIT
    if is_culprit and before == "group":
        stand(before)
    dist.init_process_group("fairring")
    dist.all_reduce(torch.ones(10))
    if is_culprit:
        stand(before)
    WAITING[before]()


main()
