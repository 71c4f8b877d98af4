"""Bodies that make and destroy many groups, and say what they hold between: what grows with the rounds is a leak."""

from __future__ import annotations

import gc
from typing import Any

import torch
import torch.distributed as dist

from failures import holdings
from failures.rank import Rank

GROUPS = 20
ROUNDS = 20
ELEMENTS = 50_000


def many_groups(rank: Rank) -> None:
    """Twenty groups at once, three times over; says "warm", "full" and "empty"."""
    rank.init()
    for number in range(3):
        groups = [dist.new_group() for _ in range(GROUPS)]
        for group in groups:
            _use(rank, group)
        if number == 2:
            rank.say("full", holdings.take())
        for group in groups:
            dist.destroy_process_group(group)
        _let_all_close(rank)
        _say_holdings(rank, ("warm", "", "empty")[number])


def many_inits(rank: Rank) -> None:
    """The default group twenty times over; says "warm" after the third and "empty" after the last.

    Each round's store is served by rank 0 at the same port. A rank that came early would find the last round's.
    """
    for number in range(ROUNDS):
        rank.init()
        _use(rank, None)
        dist.destroy_process_group()
        _say_holdings(rank, {2: "warm", ROUNDS - 1: "empty"}.get(number, ""))
        rank.say(f"left {number}")
        rank.hear("next")


def _use(rank: Rank, group: Any) -> None:
    tensor = torch.full((ELEMENTS,), float(rank.number))
    dist.all_reduce(tensor, group=group)
    assert bool((tensor == rank.size * (rank.size - 1) / 2).all())
    gathered = [torch.empty(1000) for _ in range(rank.size)]
    dist.all_gather(gathered, torch.full((1000,), float(rank.number)), group=group)
    assert [int(part[0]) for part in gathered] == list(range(rank.size))


def _let_all_close(rank: Rank) -> None:
    """Rank 0 serves the store: what others have closed there is gone once it answers a later request."""
    dist.barrier()
    if rank.number == 0:
        dist.distributed_c10d._get_default_store().add("closed", 1)


def _say_holdings(rank: Rank, word: str) -> None:
    gc.collect()
    if word:
        rank.say(word, holdings.take())
