"""Four ranks that stand still for one reason after the other, each time until something is written to a pipe.

Argument: the pipe. Rank 3 is the one whom all wait for; it says what kind it is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

BIG = torch.ones(1 << 20)
CULPRIT = 3


def hold(kind: str) -> None:
    print(kind, flush=True)
    Path(sys.argv[1]).read_text()


def stuck_in_a_call(kind: str, is_culprit: bool) -> None:
    if is_culprit:
        hold(kind)
    dist.all_reduce(torch.ones(10))


def stuck_in_an_exchange(is_culprit: bool) -> None:
    if is_culprit:
        hold("exchange")
    dist.all_to_all_single(torch.empty(4), torch.ones(4))


def stuck_in_receiving(is_culprit: bool) -> None:
    if not is_culprit:
        dist.recv(torch.empty(10), src=CULPRIT, tag=7)
        return
    hold("receive")
    for rank in range(CULPRIT):
        dist.send(torch.ones(10), rank, tag=7)


def stuck_in_sending(is_culprit: bool) -> None:
    if not is_culprit:
        dist.send(BIG, CULPRIT)
        return
    hold("send")
    for rank in range(CULPRIT):
        dist.recv(BIG, src=rank)


def main() -> None:
    is_culprit = int(os.environ["RANK"]) == CULPRIT
    if is_culprit:
        hold("absent")
    dist.init_process_group("fairring")
    dist.all_reduce(torch.ones(10))
    stuck_in_a_call("skip", is_culprit)
    stuck_in_an_exchange(is_culprit)
    stuck_in_receiving(is_culprit)
    stuck_in_sending(is_culprit)
    stuck_in_a_call("stop", is_culprit)
    stuck_in_a_call("cut", is_culprit)
    dist.destroy_process_group()


main()
