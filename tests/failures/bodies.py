"""The programs of the ranks of each case. A body returns when all is well; the case judges the error that it raises."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from failures import holdings
from failures.rank import OwnError, Rank

ELEMENTS = 3_000_000
STORE_STAYS_SECONDS = 8  # longer than other ranks wait that begin late on a busy machine
FEW = 30_000  # where memory is looked at: what tensors of twelve megabytes leave behind would hide the rest


def all_reduces(rank: Rank) -> None:
    """Until something happens."""
    rank.join()
    while True:
        dist.all_reduce(torch.ones(ELEMENTS))


def all_gathers(rank: Rank) -> None:
    rank.join()
    while True:
        dist.all_gather([torch.empty(ELEMENTS) for _ in range(rank.size)], torch.ones(ELEMENTS))


def all_to_alls(rank: Rank) -> None:
    """The same in a call that sums nothing."""
    rank.init()
    _all_to_all(rank)
    rank.say("ready")
    rank.hear("go")
    while True:
        _all_to_all(rank)


def loads(rank: Rank) -> None:
    """All-reduces between the batches of a DataLoader whose workers were forked after the group was made."""
    rank.join()
    loader: DataLoader[int] = DataLoader(
        range(1 << 30),  # type: ignore[arg-type]
        batch_size=8,
        num_workers=2,
        multiprocessing_context="fork",
    )
    for step, batch in enumerate(loader):
        dist.all_reduce(batch)
        if step == 3:
            rank.say("loading")


def makes_no_first_call(rank: Rank) -> None:
    """Rank 1 makes none: the others wait for it in theirs."""
    rank.init()
    sent = dist.isend(torch.ones(1), (rank.number + 1) % rank.size)
    dist.recv(torch.ones(1), (rank.number - 1) % rank.size)
    sent.wait()  # type: ignore[union-attr]
    rank.say("ready")
    rank.hear("go")
    if rank.number == 1:
        rank.hear("never")
    rank.say("calling")
    dist.all_reduce(torch.ones(3))


def receives(rank: Rank) -> None:
    """All wait for a message of the last rank, which sends none."""
    rank.join()
    if rank.number == rank.size - 1:
        rank.hear("never")
    rank.say("calling")
    dist.recv(torch.ones(3), rank.size - 1)


def idles(rank: Rank) -> None:
    """Makes no call until it is told to, and then one of ours."""
    rank.join()
    rank.hear("call")
    dist.all_reduce(torch.ones(3))


def idles_then_exchanges(rank: Rank) -> None:
    rank.join()
    rank.hear("call")
    _all_to_all(rank)


def pauses(rank: Rank) -> None:
    """The last rank is stopped before its call; the others wait for it in theirs."""
    rank.join()
    if rank.number == rank.size - 1:
        rank.say("here")
        rank.hear("call")
    else:
        rank.say("calling")
    for _ in range(3):
        rank.sum_right(ELEMENTS)


def keeps_on(rank: Rank) -> None:
    """Right sums until it is told to stop; the ranks agree by sums on which round is the last."""
    rank.join()
    _keep_on(rank, partial(rank.sum_right, ELEMENTS))


def serves(rank: Rank) -> None:
    """Says what it holds before and after it has kept on among strangers, and the most meanwhile."""
    rank.join()
    for _ in range(20):
        rank.make_every_call(FEW)
    rank.say("serving", holdings.take())
    peak = holdings.Peak()
    rounds = _keep_on(rank, partial(rank.make_every_call, FEW), peak.look)
    rank.say("served", holdings.take(), peak, rounds)


def raises(rank: Rank) -> None:
    rank.join()
    if rank.number == rank.size - 1:
        raise OwnError("a bug of the user's")
    dist.all_reduce(torch.ones(ELEMENTS))


def aborts(rank: Rank) -> None:
    """The last rank never calls; rank 0 aborts from another thread while it waits."""
    rank.join()
    if rank.number == rank.size - 1:
        rank.hear("go on")
        dist.all_reduce(torch.ones(5))
        return
    work = dist.all_reduce(torch.ones(5), async_op=True)
    rank.say("waiting")
    if rank.number == 0:
        aborter = threading.Thread(target=_abort_when_told, args=(rank,))
        aborter.start()
        try:
            work.wait()
        finally:
            aborter.join()
    work.wait()


def waits_briefly(rank: Rank) -> None:
    """The last rank never calls; the others wait with a timeout of their own that is shorter than the group's."""
    rank.join()
    if rank.number == rank.size - 1:
        rank.hear("go on")
        return
    work = dist.all_reduce(torch.ones(77), async_op=True)
    work.wait(timedelta(seconds=1))


def comes(rank: Rank) -> None:
    """The first call, to which not every rank of the group has come. Rank 0's store ends when its own wait does."""
    if rank.number == 0:
        rank.timeout += STORE_STAYS_SECONDS
    rank.init()
    dist.all_reduce(torch.ones(3))


def sums(rank: Rank) -> None:
    """Nothing else."""
    rank.init()
    rank.sum_right(1000)


# --- calls that differ: the last rank makes another one than the rest


def differs_in_size(rank: Rank) -> None:
    _differ(rank, lambda: dist.all_reduce(torch.ones(100)), lambda: dist.all_reduce(torch.ones(77)))


def differs_in_dtype(rank: Rank) -> None:
    _differ(rank, lambda: dist.all_reduce(torch.ones(100)), lambda: dist.all_reduce(torch.ones(100, dtype=torch.int64)))


def differs_in_op(rank: Rank) -> None:
    _differ(
        rank,
        lambda: dist.all_reduce(torch.ones(100)),
        lambda: dist.all_reduce(torch.ones(100), op=dist.ReduceOp.AVG),
    )


def differs_in_order(rank: Rank) -> None:
    def in_turn(*sizes: int) -> None:
        works = [dist.all_reduce(torch.ones(size), async_op=True) for size in sizes]
        for work in works:
            work.wait()

    _differ(rank, lambda: in_turn(200_000, 300_000), lambda: in_turn(300_000, 200_000))


def differs_in_kind(rank: Rank) -> None:
    """An all_reduce against an all_to_all."""
    _differ(rank, lambda: dist.all_reduce(torch.ones(100)), lambda: _all_to_all(rank))


def differs_in_half(rank: Rank) -> None:
    """An all-gather against a reduce-scatter: the two halves of an all_reduce of ours."""

    def gather() -> None:
        dist.all_gather_into_tensor(torch.empty(100 * rank.size), torch.ones(100))

    def reduce_scatter() -> None:
        dist.reduce_scatter_tensor(torch.empty(100), torch.ones(100 * rank.size))

    _differ(rank, gather, reduce_scatter)


def differs_in_kind_without_sums(rank: Rank) -> None:
    """Two calls that sum nothing."""
    _differ(rank, lambda: _all_to_all(rank), lambda: dist.broadcast(torch.ones(100), src=0))


def leaves_one_out(rank: Rank) -> None:
    """The last rank leaves out a call and goes on to something that never ends."""
    rank.join()
    if rank.number == rank.size - 1:
        rank.hear("go on")
        return
    dist.all_reduce(torch.ones(77))


def leaves_one_out_and_goes_on(rank: Rank) -> None:
    """The last rank leaves out a call and makes the next ones."""
    rank.join()
    if rank.number != rank.size - 1:
        dist.all_reduce(torch.ones(77))
    for size in (10, 11, 12):
        dist.all_reduce(torch.ones(size))


def leaves_one_out_and_ends(rank: Rank) -> None:
    rank.join()
    if rank.number == rank.size - 1:
        return
    dist.all_reduce(torch.ones(77))


# --- settings


def sets_slice_size(rank: Rank) -> None:
    """The last rank has another slice size."""
    if rank.number == rank.size - 1:
        os.environ["FAIRRING_SLICE_SIZE"] = "1MiB"
    _come_and_learn(rank)


def sets_nonsense(rank: Rank) -> None:
    """The last rank has a value that is none; the others wait for it."""
    if rank.number == rank.size - 1:
        os.environ["FAIRRING_SLICE_SIZE"] = "big"
    _come_and_learn(rank)


def sets_unknown(rank: Rank) -> None:
    os.environ["FAIRRING_SLICE_SIEZ"] = "1MiB"
    comes(rank)


def _come_and_learn(rank: Rank) -> None:
    """Nobody ends, and takes the store along, before all have learned what is wrong."""
    try:
        comes(rank)
    finally:
        rank.say("learned")
        rank.hear("end")


def _keep_on(rank: Rank, make_calls: Callable[[], None], each_round: Callable[[], None] = lambda: None) -> int:
    rounds = 0
    stop = torch.zeros(1)
    while not stop.item():
        make_calls()
        stop.fill_(float(rank.stage.poll()))
        dist.all_reduce(stop)
        each_round()
        rounds += 1
    return rounds


def _all_to_all(rank: Rank) -> None:
    dist.all_to_all_single(torch.empty(100_000 * rank.size), torch.ones(100_000 * rank.size))


def _differ(rank: Rank, most: Callable[[], Any], last: Callable[[], Any]) -> None:
    rank.join()
    (last if rank.number == rank.size - 1 else most)()
    dist.all_reduce(torch.ones(1))  # who has nothing to wait for in its own call learns it in the next


def _abort_when_told(rank: Rank) -> None:
    rank.hear("abort")
    group: Any = dist.group.WORLD
    group._get_backend(torch.device("cpu")).abort()
