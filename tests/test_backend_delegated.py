"""Calls that a stock backend carries out: how their Works behave, and how they end when the group fails."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, init_group

kept: dict[str, Any] = {}  # what a rank keeps from one call to the next

Start = Callable[[int], Any]


def _broadcast(_rank: int) -> Any:
    return dist.broadcast(torch.ones(1 << 18), src=2, async_op=True)


def _all_gather(_rank: int) -> Any:
    outputs = [torch.empty(1 << 16) for _ in range(dist.get_world_size())]
    return dist.all_gather(outputs, torch.ones(1 << 16), async_op=True)


def _maximum(_rank: int) -> Any:
    return dist.all_reduce(torch.ones(1 << 18, dtype=torch.int32), op=dist.ReduceOp.MAX, async_op=True)


def _reduce_scatter(_rank: int) -> Any:
    return dist.reduce_scatter_tensor(torch.empty(1 << 16), torch.ones(dist.get_world_size() << 16), async_op=True)


def _barrier(_rank: int) -> Any:
    return dist.barrier(async_op=True)


def _receive(_rank: int) -> Any:
    return dist.irecv(torch.empty(8), src=2)


def _receive_from_anyone(_rank: int) -> Any:
    return dist.irecv(torch.empty(8))


_CALLS: dict[str, Start] = {
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_reduce of the maximum": _maximum,
    "reduce_scatter_tensor": _reduce_scatter,
    "barrier": _barrier,
    "receive": _receive,
    "receive from anyone": _receive_from_anyone,
}


def _semantics(rank: int) -> None:
    tensor = torch.full((3,), rank, dtype=torch.int32)
    work: Any = dist.all_reduce(tensor, op=dist.ReduceOp.MAX, async_op=True)
    future, result = work.get_future(), work.get_future_result()
    doubled = future.then(lambda done: done.value()[0] * 2)
    assert work.wait(timedelta(seconds=30))
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert doubled.wait().tolist() == [2, 2, 2]
    assert future.value()[0].data_ptr() == tensor.data_ptr()
    assert result.wait() == 0
    assert work.result()[0].tolist() == [1, 1, 1]
    late = dist.barrier(async_op=True)
    late.wait()
    assert late.get_future().wait() == []
    works: list[Any] = [dist.broadcast(torch.full((2,), float(rank)), src=0, async_op=True) for _ in range(20)]
    for each in reversed(works):
        each.wait()
    assert works[3].result()[0].tolist() == [0.0, 0.0]
    dist.broadcast(torch.ones(5), src=1, async_op=True)  # dropped
    dist.barrier()


def test_a_delegated_work_does_what_works_do(pair: Ranks) -> None:
    pair.run(_semantics)


def _wrong(_rank: int) -> None:
    with pytest.raises(ValueError, match="the output has room for 4 elements of 3"):
        dist.all_gather([torch.ones(4), torch.ones(4)], torch.ones(3))
    dist.barrier()  # it was a usage error: the group goes on


def test_a_call_that_is_wrong_in_itself_leaves_the_group_alone(pair: Ranks) -> None:
    pair.run(_wrong)


def _begin(rank: int, names: list[str]) -> int:
    dist.all_reduce(torch.ones(3))
    dist.barrier()
    if rank != 2:
        kept["works"] = [_CALLS[name](rank) for name in names]
    return os.getpid()


def _end_badly(rank: int) -> list[str]:
    texts = []
    for work in kept.pop("works"):
        with pytest.raises(dist.DistBackendError) as caught:
            work.wait()
        texts.append(str(caught.value))
        assert work.is_completed()
        assert not work.is_success()
    for call in (_maximum, _barrier, _receive):
        with pytest.raises(dist.DistBackendError) as caught:
            call(rank).wait()
        texts.append(str(caught.value))
    with pytest.raises(dist.DistBackendError) as caught:
        dist.all_reduce(torch.ones(3))
    dist.destroy_process_group()
    return [*texts, str(caught.value)]


def test_a_rank_that_dies_is_named_by_all_who_wait() -> None:
    ranks = Ranks(3)
    try:
        ranks.init()
        pids = ranks.run(_begin, list(_CALLS))
        os.kill(pids[2], signal.SIGKILL)
        for texts in ranks.run(_end_badly, on=[0, 1]):
            assert len(texts) == len(_CALLS) + 4
            for text in texts:
                assert "rank 2" in text
        assert ranks.close()[:2] == [0, 0]
    finally:
        ranks.kill()


def test_a_rank_that_stops_for_good_ends_in_the_timeout_and_keeps_nobody() -> None:
    ranks = Ranks(3)
    try:
        ranks.init(timeout_seconds=3)
        pids = ranks.run(_begin, ["all_gather", "receive"])
        os.kill(pids[2], signal.SIGSTOP)
        for texts in ranks.run(_end_badly, on=[0, 1]):
            assert "all_gather of 3 tensors, the first of 65536 Float32" in texts[0]
        os.kill(pids[2], signal.SIGKILL)
        assert ranks.close()[:2] == [0, 0]
    finally:
        ranks.kill()


def _abort(_rank: int) -> list[str]:
    works = [start(0) for start in _CALLS.values()]
    group: Any = dist.group.WORLD
    timer = threading.Timer(0.2, group._get_backend(torch.device("cpu")).abort)
    timer.start()
    texts = []
    for work in reversed(works):
        with pytest.raises(dist.DistBackendError) as caught:
            work.wait()
        texts.append(str(caught.value))
    timer.join()
    dist.destroy_process_group()
    return texts


def test_abort_frees_the_waits_for_delegated_calls() -> None:
    ranks = Ranks(3)
    try:
        ranks.init()
        ranks.run(_warm_up)
        (texts,) = ranks.run(_abort, on=[0])
        assert all("rank 0 aborted" in text for text in texts)
        assert ranks.close() == [0, 0, 0]
    finally:
        ranks.kill()


def _warm_up(_rank: int) -> None:
    dist.barrier()


def _threads_and_descriptors() -> tuple[int, int]:
    return len(list(Path("/proc/self/task").iterdir())), len(list(Path("/proc/self/fd").iterdir()))


def _fail_again_and_again(rank: int, port: int, rounds: int) -> list[tuple[int, int]]:
    counts = []
    for number in range(rounds):
        store = dist.PrefixStore(str(number), dist.TCPStore("127.0.0.1", port, is_master=False))
        dist.init_process_group("fairring", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
        dist.barrier()
        if rank == 0:
            store.wait(
                ["through"]
            )  # a barrier that rank 0 is through may not have ended on rank 1, and an abort ends it
            work = _all_gather(rank)
            group: Any = dist.group.WORLD
            group._get_backend(torch.device("cpu")).abort()
            with pytest.raises(dist.DistBackendError):
                work.wait()
            del work
        else:
            store.set("through", "")
            with pytest.raises(dist.DistBackendError):
                dist.barrier()  # not what rank 0 called
        dist.destroy_process_group()
        counts.append(_threads_and_descriptors())
    return counts


def test_groups_that_fail_leave_no_threads_and_no_descriptors_behind() -> None:
    ranks = Ranks(2)
    try:
        for counts in ranks.run(_fail_again_and_again, ranks.store.port, 6):
            threads, descriptors = zip(*counts, strict=True)
            # The first rounds make objects that stay: threads of torch's, and the stores that Python still holds.
            assert threads[-1] <= threads[2]
            assert descriptors[-1] <= descriptors[2]
    finally:
        ranks.kill()


def _abort_while_a_send_waits(rank: int, size: int, port: int) -> str:
    init_group(rank, size, port, "fairring", 60)
    if rank == 1:
        dist.all_reduce(torch.ones(1))
        return ""
    dist.all_reduce(torch.ones(1))
    group: Any = dist.group.WORLD
    timer = threading.Timer(0.3, group._get_backend(torch.device("cpu")).abort)
    timer.start()
    with pytest.raises(dist.DistBackendError) as caught:
        dist.send(torch.ones(1 << 20), 1)  # which rank 1 does not receive
    return str(caught.value)


def test_abort_frees_a_send_that_nobody_receives() -> None:
    ranks = Ranks(2)
    try:
        texts = ranks.run(_abort_while_a_send_waits, 2, ranks.store.port)
        assert "rank 0 aborted" in texts[0]
        assert ranks.close() == [0, 0]
    finally:
        ranks.kill()


def _hear_of_it(rank: int, size: int, port: int) -> str:
    init_group(rank, size, port, "fairring", 60)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    if rank == 0:
        backend.abort()
    with pytest.raises(dist.DistBackendError) as caught:
        dist.barrier()
    return str(caught.value)


def test_a_rank_that_waits_for_others_reads_of_the_failure_in_the_store() -> None:
    ranks = Ranks(3)
    try:
        texts = ranks.run(_hear_of_it, 3, ranks.store.port, on=[0, 1])  # rank 2 never comes
        assert "rank 0 aborted" in texts[1]
    finally:
        ranks.kill()
