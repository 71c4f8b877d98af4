"""Bodies that go on after a death: the survivors reconfigure, or shrink, the group that failed, and make further calls.

The ranks that die are those that the case kills; survivors know them, as they would from a scheduler.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from failures.rank import Rank

ELEMENTS = 300_000
c10d: Any = dist.distributed_c10d


def reconfigure_without_the_last(rank: Rank) -> None:
    _go_on_without(rank, {rank.size - 1})


def reconfigure_without_the_first(rank: Rank) -> None:
    """Which holds the store."""
    _go_on_without(rank, {0})


def reconfigure_without_a_machine(rank: Rank) -> None:
    _go_on_without(rank, {2, 3})


def shrink_without_the_last(rank: Rank) -> None:
    rank.join()
    _sum_until_an_error()
    dist.shrink_group([rank.size - 1], shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
    _use(rank)


def _go_on_without(rank: Rank, dead: set[int]) -> None:
    rank.init(enable_reconfigure=True)
    store = c10d._get_default_store()
    store.set(f"handle {rank.number}", c10d._get_reconfigure_handle())
    handles = [store.get(f"handle {number}").decode() for number in range(rank.size)]
    _reconfigure(rank, 1, handles)
    rank.sum_right(1000)
    rank.say("ready")
    rank.hear("go")
    _sum_until_an_error()
    _reconfigure(rank, 2, [handle for number, handle in enumerate(handles) if number not in dead])
    _use(rank)


def _sum_until_an_error() -> None:
    tensor = torch.ones(ELEMENTS)
    try:
        while True:
            dist.all_reduce(tensor.fill_(1.0))
    except dist.DistBackendError as error:
        if "died" not in str(error) and "no sign of life" not in str(error):
            raise


def _reconfigure(rank: Rank, uuid: int, handles: list[str]) -> None:
    c10d._reconfigure(uuid, handles, timeout=timedelta(seconds=rank.timeout)).wait()


def _use(rank: Rank) -> None:
    """As the members that there are now."""
    rank.number, rank.size = dist.get_rank(), dist.get_world_size()
    rank.sum_right(ELEMENTS)
    rank.say("first step")
    rank.make_every_call(1000)
