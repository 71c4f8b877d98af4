"""The works that async_op=True returns: waiting, futures, results, errors."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from features.rank import Rank, all_made, made, same


def _sum_of_all(rank: Rank, count: int) -> torch.Tensor:
    return torch.stack(all_made(rank.size, count)).sum(0)


def _begun(rank: Rank, count: int) -> tuple[torch.Tensor, Any]:
    tensor = made(rank.number, count)
    return tensor, dist.all_reduce(tensor, async_op=True)


def waited_for(rank: Rank) -> None:
    """wait, also with a timeout, and again"""
    tensor, work = _begun(rank, 100)
    assert work.wait(timedelta(seconds=15))
    same(tensor, _sum_of_all(rank, 100))
    assert work.wait()
    assert work.is_completed()
    assert work.is_success()


def result(rank: Rank) -> None:
    """result: the tensors of the call"""
    tensor, work = _begun(rank, 100)
    work.wait()
    assert [each.data_ptr() for each in work.result()] == [tensor.data_ptr()]


def future(rank: Rank) -> None:
    """get_future: its value, and what then makes of it"""
    _, work = _begun(rank, 100)
    future = work.get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    same(future.wait()[0], _sum_of_all(rank, 100))
    same(doubled.wait(), 2 * _sum_of_all(rank, 100))
    assert future.done()


def future_of_other_calls(rank: Rank) -> None:
    """get_future of broadcast, all_gather, barrier"""
    outputs = [torch.empty(3) for _ in rank.everyone]
    works: list[Any] = [
        dist.broadcast(torch.ones(3), src=1, async_op=True),
        dist.all_gather(outputs, made(rank.number, 3), async_op=True),
        dist.barrier(async_op=True),
    ]
    for work in works:
        work.get_future().wait()
    same(outputs, all_made(rank.size, 3))


def futures_of_reduce_scatters(rank: Rank) -> None:
    """get_future of reduce_scatter_tensor and all_to_all_single"""
    scattered, exchanged = torch.empty(3), torch.empty(rank.size)
    work: Any = dist.reduce_scatter_tensor(scattered, torch.ones(3 * rank.size), async_op=True)
    work.get_future().wait()
    same(scattered, torch.full((3,), float(rank.size)))
    work = dist.all_to_all_single(exchanged, torch.full((rank.size,), float(rank.number)), async_op=True)
    work.get_future().wait()
    same(exchanged, torch.arange(rank.size).float())


def future_result(rank: Rank) -> None:
    """get_future_result: how the call ended"""
    _, work = _begun(rank, 100)
    assert work.get_future_result().wait() == 0


def collected_futures(rank: Rank) -> None:
    """torch.futures.collect_all over works in flight"""
    begun = [_begun(rank, count) for count in (5, 50, 500)]
    torch.futures.collect_all([work.get_future() for _, work in begun]).wait()
    for tensor, _ in begun:
        same(tensor, _sum_of_all(rank, tensor.numel()))


def call_in_a_callback(rank: Rank) -> None:
    """A callback of a future makes the next call and waits for it"""
    tensor, work = _begun(rank, 100)

    def again(_: Any) -> torch.Tensor:
        dist.all_reduce(tensor, async_op=True).get_future().wait()
        return tensor

    same(work.get_future().then(again).wait(), rank.size * _sum_of_all(rank, 100))


def raising_callback(rank: Rank) -> None:
    """An exception of a callback reaches who waits for its future, and nobody else"""

    def fail(_: Any) -> None:
        raise KeyError("a bug of the user's")

    _, work = _begun(rank, 100)
    with pytest.raises(RuntimeError, match="a bug of the user's"):
        work.get_future().then(fail).wait()
    tensor, work = _begun(rank, 7)
    work.wait()
    same(tensor, _sum_of_all(rank, 7))


def dropped(rank: Rank) -> None:
    """Works that nobody keeps are carried out"""
    tensors = [_begun(rank, count)[0] for count in (5, 50, 500)]
    dist.barrier()
    last, work = _begun(rank, 9)
    work.wait()
    for tensor in [*tensors, last]:
        same(tensor, _sum_of_all(rank, tensor.numel()))


def not_yet_complete(rank: Rank) -> None:
    """is_completed is false until the last rank has called"""
    store = rank.store("not_yet_complete")
    if rank.number == 1:
        store.wait(["looked"])
    tensor, work = _begun(rank, 100)
    if rank.number == 0:
        assert not work.is_completed()
        store.set("looked", "")
    work.wait()
    assert work.is_completed()
    same(tensor, _sum_of_all(rank, 100))


def wait_that_runs_out(rank: Rank) -> None:
    """wait with a timeout that runs out is an error, and the call goes on"""
    store = rank.store("wait_that_runs_out")
    if rank.number == 1:
        store.wait(["ran out"])
    tensor, work = _begun(rank, 100)
    if rank.number == 0:
        with pytest.raises(RuntimeError):
            work.wait(timedelta(milliseconds=100))
        store.set("ran out", "")
    work.wait()
    same(tensor, _sum_of_all(rank, 100))


def waits_from_threads(rank: Rank) -> None:
    """Several threads wait for one work"""
    tensor, work = _begun(rank, 1000)
    seen: list[torch.Tensor] = []

    def look() -> None:
        work.wait()
        seen.append(tensor.clone())

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    for each in seen:
        same(each, _sum_of_all(rank, 1000))


def sequence_numbers(rank: Rank) -> None:
    """Sequence numbers of the group move with its calls and are equal on all ranks"""
    group: Any = dist.group.WORLD
    before = group._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(3))
    dist.barrier()
    after = group._get_sequence_number_for_group()
    assert after > before
    numbers: list[Any] = [None] * rank.size
    dist.all_gather_object(numbers, after)
    assert numbers == [after] * rank.size


def timeouts_are_set(rank: Rank) -> None:
    """dist.set_timeout, and an all_reduce after it"""
    group: Any = dist.new_group()
    dist.set_timeout(timedelta(seconds=11), group)
    tensor = made(rank.number, 3)
    dist.all_reduce(tensor, group=group)
    same(tensor, _sum_of_all(rank, 3))


def wrong_arguments(rank: Rank) -> None:
    """A call that is wrong in itself is an error on the spot, and the group goes on"""
    with pytest.raises((RuntimeError, ValueError)):
        dist.all_gather([torch.ones(3)], torch.ones(3))
    tensor, work = _begun(rank, 3)
    work.wait()
    same(tensor, _sum_of_all(rank, 3))
