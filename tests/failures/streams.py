"""The programs of ranks that call without a pause, until the stage holds one of them up. A rank that is told to compute
makes no further call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from failures.rank import Rank

ELEMENTS = 262_152  # 1 MiB, in equal parts for 2, 3, 4 or 8 ranks
AHEAD = 3  # calls under way at once


def all_reduces(rank: Rank) -> None:
    _stream(rank, lambda _: dist.all_reduce(torch.ones(ELEMENTS), async_op=True))


def all_to_alls(rank: Rank) -> None:
    _stream(rank, lambda _: dist.all_to_all_single(torch.empty(ELEMENTS), torch.ones(ELEMENTS), async_op=True))


def messages(rank: Rank) -> None:
    """Around the ring: each waits for the message of the one before, and sends it to the next."""
    rank.join()
    tensor = torch.ones(ELEMENTS)
    before, after = (rank.number - 1) % rank.size, (rank.number + 1) % rank.size
    while True:
        _compute_if_told(rank)
        if rank.number == 0:
            dist.send(tensor, after)
            dist.recv(tensor, before)
        else:
            dist.recv(tensor, before)
            dist.send(tensor, after)


def _stream(rank: Rank, call: Callable[[int], Any]) -> None:
    rank.join()
    works: deque[Any] = deque()
    step = 0
    while True:
        _compute_if_told(rank)
        works.append(call(step))
        step += 1
        if len(works) == AHEAD:
            works.popleft().wait()


def _compute_if_told(rank: Rank) -> None:
    if rank.stage.poll():
        rank.hear("compute")
        rank.hear("never")
