"""Groups made again on the same store: ranks find each other whatever became of earlier ones, or learn of deaths."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, all_reduce_ones, init_group


def _init(rank: int, size: int, port: int) -> None:
    init_group(rank, size, port, "fairring", 60)


def _use(rank: int) -> list[float]:
    sent = torch.full((3,), float(rank + 5))
    dist.broadcast(sent, src=0)
    return [all_reduce_ones(rank, 3), sent[0].item()]


def _init_and_use(rank: int, size: int, port: int) -> list[float]:
    _init(rank, size, port)
    return _use(rank)


def test_a_start_after_one_that_was_killed_in_use(strangers: Ranks) -> None:
    port = strangers.store.port
    with Ranks(2) as earlier:
        earlier.run(_init_and_use, 2, port)
    assert strangers.run(_init_and_use, 2, port) == [[6.0, 5.0]] * 2


def test_a_rank_that_waits_moves_on_when_another_starts_again() -> None:
    with Ranks(3) as ranks, Ranks(1) as earlier:
        port = ranks.store.port
        earlier.run(_init, 3, port, on=[0])
        ranks.run(_init, 3, port, on=[1])
        waiting = ranks.start(_use, on=[1])  # rank 2 is missing
        earlier.kill()
        ranks.run(_init, 3, port, on=[0])
        rest = ranks.start(_use, on=[0])
        rest += ranks.start(_init_and_use, 3, port, on=[2])
        results = dict(zip(waiting + rest, ranks.finish(waiting + rest), strict=True))
        assert results == {rank: [9.0, 5.0] for rank in range(3)}


def _expect_death(_rank: int) -> None:
    with pytest.raises(dist.DistBackendError, match=r"rank\(s\) 1 of 3 made the group and died .* 1000 ms"):
        dist.all_reduce(torch.ones(3))


def _send_or_receive(rank: int) -> float:
    message = torch.full((3,), float(rank))
    dist.send(message, 0) if rank == 1 else dist.recv(message, 1)
    return message[0].item()


def test_who_died_before_the_first_use_is_named_and_met_when_it_comes_again() -> None:
    """Rank 2 makes no call in the meantime, nor later."""
    patience = {"FAIRRING_HEARTBEAT_TIMEOUT": "1s"}
    with Ranks(3, patience) as ranks, Ranks(2, patience) as earlier:
        port = ranks.store.port
        earlier.run(_init, 3, port, on=[1])
        earlier.kill()
        earlier.close()
        ranks.run(_init, 3, port, on=[0, 2])
        ranks.run(_expect_death, on=[0])
        ranks.run(_init, 3, port, on=[1])
        assert ranks.run(_send_or_receive, on=[0, 1]) == [1.0, 1.0]


def _retry(rank: int, size: int, port: int) -> None:
    init_group(rank, size, port, "fairring", 0.5)
    with pytest.raises(dist.DistBackendError, match="had not made the group"):
        dist.all_reduce(torch.ones(3))
    dist.destroy_process_group()
    _init(rank, size, port)


def test_a_process_may_try_again_after_waiting_in_vain(strangers: Ranks) -> None:
    port = strangers.store.port
    strangers.run(_retry, 2, port, on=[0])
    strangers.run(_init, 2, port, on=[1])
    assert strangers.run(_use) == [[6.0, 5.0]] * 2


def _init_twice(rank: int, size: int, port: int) -> None:
    _init(rank, size, port)
    dist.destroy_process_group()
    _init(rank, size, port)


def test_a_rank_may_be_ahead_by_groups_that_nobody_used(strangers: Ranks) -> None:
    port = strangers.store.port
    for rank in (0, 1):  # one after the other
        strangers.run(_init_twice, 2, port, on=[rank])
    assert strangers.run(_use) == [[6.0, 5.0]] * 2


def _first_life(rank: int, port: int) -> None:
    _init(rank, 3, port)
    dist.new_group([0, 1])
    dist.all_reduce(torch.ones(3))


def _make_again(rank: int, port: int) -> None:
    """torch counts groups anew after destroy_process_group: this one has the name of the first life's."""
    dist.destroy_process_group()
    _init(rank, 3, port)
    globals()["_everybody"] = dist.new_group([0, 1, 2])


def _use_everybody(rank: int) -> float:
    tensor = torch.full((3,), float(rank + 1))
    dist.all_reduce(tensor, group=globals()["_everybody"])
    return tensor[0].item()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_a_name_that_comes_again_with_other_members_is_another_group(order: tuple[int, ...]) -> None:
    """Any rank may be the first to make it again, while the others are still in the former group of that name."""
    with Ranks(3) as ranks:
        port = ranks.store.port
        ranks.run(_first_life, port)
        for rank in order:
            ranks.run(_make_again, port, on=[rank])
        assert ranks.run(_use_everybody) == [6.0] * 3
