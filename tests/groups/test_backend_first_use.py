"""Sends and receives as the first thing that a group does: they wait only for the ranks that they name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, init_group

FOUR = 4


@pytest.fixture
def fresh() -> Any:
    """Four ranks whose group has done nothing yet."""
    ranks = Ranks(FOUR)
    ranks.init()
    yield ranks
    assert ranks.close() == [0] * FOUR


def _send_then_sum(rank: int, sender: int) -> float:
    """The receiver comes to its receive only after a call that needs the sender."""
    output, work = torch.zeros(2), None
    if rank == sender:
        work = dist.isend(torch.full((2,), 7.0), 1 - sender)
    total = torch.ones(1)
    dist.all_reduce(total)
    if rank == 1 - sender:
        work = dist.irecv(output, sender)
    if work:
        work.wait()
    return output[0].item() + total.item()


@pytest.mark.parametrize("sender", [0, 1])
def test_an_isend_does_not_wait_for_its_receive(fresh: Ranks, sender: int) -> None:
    expected = [4.0] * FOUR
    expected[1 - sender] += 7.0
    assert fresh.run(_send_then_sum, sender) == expected


def _from_anyone(rank: int) -> list[int]:
    if rank == 2:
        sources = []
        for _ in range(2):
            output = torch.zeros(1)
            sources.append(dist.recv(output))
            assert output.item() == sources[-1]
        return sorted(sources)
    dist.send(torch.tensor([float(rank)]), 2)
    return []


def test_a_rank_may_begin_with_receives_from_anyone(fresh: Ranks) -> None:
    assert fresh.run(_from_anyone, on=[0, 2, 3])[1] == [0, 3]


def _make_and_destroy(rank: int, size: int, port: int, rounds: int) -> None:
    for number in range(rounds):
        store = dist.PrefixStore(str(number), dist.TCPStore("127.0.0.1", port, is_master=False))
        dist.init_process_group("fairring", store=store, rank=rank, world_size=size)
        dist.destroy_process_group()


def test_groups_that_are_never_used_end_well() -> None:
    with Ranks(3) as ranks:
        ranks.run(_make_and_destroy, 3, ranks.store.port, 3)
        assert ranks.close() == [0] * 3


def _destroy_alone(rank: int, size: int, port: int) -> None:
    init_group(rank, size, port, "fairring", 60)
    dist.destroy_process_group()


def test_a_group_that_others_never_make_can_be_destroyed() -> None:
    with Ranks(2) as ranks:
        ranks.run(_destroy_alone, 3, ranks.store.port)
        assert ranks.close() == [0, 0]
