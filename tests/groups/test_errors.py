"""Errors carry who they are about, whichever way they come to Python."""

from __future__ import annotations

import copy
import os
import pickle
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, backend_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fairring import _core, errors

VICTIM = 2


def _raised(function: Callable[[], Any]) -> Any:
    with pytest.raises(dist.DistBackendError) as caught:
        function()
    return caught.value


def _all_reduce() -> Any:
    return dist.all_reduce(torch.ones(1000), async_op=True)


def _by_then() -> None:
    """The error of the first future is looked at in a callback, whose future has that for its value."""
    look = _all_reduce().get_future().then(lambda future: _raised(future.value))
    raise look.wait()


def _by_backward() -> None:
    replica = DistributedDataParallel(nn.Linear(4, 1), init_sync=False)
    replica(torch.ones(2, 4)).sum().backward()


def _by_functional() -> None:
    world: Any = dist.group.WORLD
    result: Any = torch.distributed._functional_collectives.all_reduce(torch.ones(4), "sum", world)
    result.wait()


def _by_torchfts_way() -> None:
    text = _core.first_error(backend_of())
    raise dist.DistBackendError(text)


def _by_a_new_group() -> None:
    group: Any = dist.new_group(timeout=timedelta(seconds=2))
    dist.all_reduce(torch.ones(1), group=group)


WAYS: dict[str, Callable[[], Any]] = {
    "wait": lambda: _all_reduce().wait(),
    "call": lambda: dist.all_reduce(torch.ones(1000)),
    "sparse": lambda: dist.all_reduce(torch.eye(4).to_sparse()),
    "object": lambda: dist.all_gather_object([""] * dist.get_world_size(), "object"),
    "message": lambda: dist.send(torch.ones(4), VICTIM),
    "barrier": dist.barrier,
    "future": lambda: _all_reduce().get_future().wait(),
    "future of all": lambda: torch.futures.wait_all([_all_reduce().get_future()]),
    "then": _by_then,
    "backward": _by_backward,
    "functional": _by_functional,
    "first error": _by_torchfts_way,
    "new group": _by_a_new_group,
}


def _die(_rank: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _errors_by_way(_rank: int) -> dict[str, tuple[str, str, tuple[int, ...], str]]:
    """Of each way: the type, the kind, the ranks and the text; all of it must survive a pickle and a copy."""
    found = {}
    for name, way in WAYS.items():
        error = _raised(way)
        for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error)), name
        found[name] = (type(error).__name__, error.kind, error.ranks, str(error))
    return found


def test_an_error_names_the_rank_that_died_by_every_way(trio: Ranks) -> None:
    trio.run(_all_reduce_of_ones)
    trio.start(_die, on=[VICTIM])
    survivors = [rank for rank in range(trio.size) if rank != VICTIM]
    for found in trio.run(_errors_by_way, on=survivors):
        new = found.pop("new group")
        assert (new[0], new[2]) in {("RankLateError", (VICTIM,)), ("RankDiedError", (VICTIM,))}, new
        for way, (name, kind, ranks, text) in found.items():
            assert (name, kind, ranks) == ("RankDiedError", "peer died", (VICTIM,)), (way, name, text)


def _all_reduce_of_ones(_rank: int) -> None:
    _all_reduce().wait()


def _differ(rank: int) -> tuple[str, tuple[int, ...]]:
    error = _raised(lambda: dist.all_reduce(torch.ones(10 + rank // VICTIM)))
    return type(error).__name__, error.ranks


def test_an_error_of_different_calls_has_both_ranks(trio: Ranks) -> None:
    for name, ranks in trio.run(_differ):
        assert name == "MismatchError"
        assert len(ranks) == 2
        assert min(ranks) < VICTIM <= max(ranks)


def _wait_for_nobody(rank: int) -> tuple[str, tuple[int, ...]]:
    if rank == VICTIM:
        return "", ()
    error = _raised(lambda: _all_reduce().wait(timedelta(milliseconds=10)))
    return type(error).__name__, error.ranks


def test_a_wait_that_gives_up_is_late_and_blames_nobody(trio: Ranks) -> None:
    for found in trio.run(_wait_for_nobody)[:VICTIM]:
        assert found == ("RankLateError", ())


def test_errors_of_others_stay_as_they_are() -> None:
    errors.hand_out()
    error = dist.DistBackendError("not one of ours", 2)
    assert type(error) is dist.DistBackendError
    assert error.args == ("not one of ours", 2)
    assert type(dist.DistBackendError()) is dist.DistBackendError


def test_every_kind_has_the_type_that_its_name_says() -> None:
    made = errors.RankDiedError("rank 3 died")
    made.ranks = (3,)
    assert isinstance(made, dist.DistBackendError)
    assert isinstance(made, RuntimeError)
    assert pickle.loads(pickle.dumps(made)).ranks == (3,)
