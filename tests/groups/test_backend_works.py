"""The works of asynchronous calls: waits, futures, callbacks."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, on_ranks

PATIENCE_SECONDS = 20

kept: dict[str, Any] = {}  # what a rank keeps from one call to the next


@on_ranks("pair")
def test_a_future_may_be_asked_for_after_the_wait() -> None:
    work = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    assert work.get_future().wait()[0].item() == 2


HELD = 60  # futures, each of whose callbacks keeps the next future waiting for a while


def _ask_for_futures(_rank: int) -> None:
    released = kept["released"] = threading.Event()
    futures = [dist.all_reduce(torch.ones(1), async_op=True).get_future() for _ in range(HELD)]
    kept["held"] = [future.then(lambda _: released.wait(PATIENCE_SECONDS)) for future in futures]
    kept["work"] = dist.all_reduce(torch.ones(1), async_op=True)
    kept["future"] = kept["work"].get_future()


def _wait_and_ask(_rank: int) -> bool:
    kept["work"].wait()
    done: bool = kept["future"].done()
    kept["released"].set()
    for one in kept["held"]:
        one.wait()
    kept.clear()
    return done


def _reduce_as_often(_rank: int) -> None:
    for work in [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(HELD + 1)]:
        work.wait()


def test_a_future_is_complete_once_its_work_has_been_waited_for(pair: Ranks) -> None:
    pair.run(_ask_for_futures, on=[0])
    waiting = pair.start(_wait_and_ask, on=[0])
    pair.run(_reduce_as_often, on=[1])
    assert pair.finish(waiting) == [True]


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _nested(rank: int) -> None:
    def inner(done: torch.futures.Future[Any]) -> Any:
        tensor = done.value()[0].clone()
        return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

    future = dist.all_reduce(torch.full((3,), float(rank)), async_op=True).get_future().then(inner)
    assert torch.equal(future.wait(), torch.full((3,), 2.0))


def _nested_and_quiet(rank: int) -> int:
    dist.all_reduce(torch.ones(1))
    before = _threads()
    _nested(rank)
    end = time.monotonic() + PATIENCE_SECONDS
    while _threads() > before and time.monotonic() < end:
        os.sched_yield()
    return _threads() - before


def test_threads_for_callbacks_that_wait_end_after_them() -> None:
    with Ranks(2) as ranks:  # in which no callback has waited yet
        ranks.init()
        assert max(ranks.run(_nested_and_quiet)) <= 0


def _impatient(_rank: int) -> str:
    pending = kept["work"] = _gather_sevens()
    with pytest.raises(dist.DistBackendError) as caught:
        pending.wait(timedelta(milliseconds=20))
    return str(caught.value)


def _gather_sevens() -> Any:
    return dist.all_gather([torch.zeros(7), torch.zeros(7)], torch.ones(7), async_op=True)


def _gather(_rank: int) -> None:
    _gather_sevens().wait()


def _wait_again(_rank: int) -> float:
    kept["work"].wait()
    return float(sum(part.sum() for part in kept["work"].result()))


def test_a_wait_that_runs_out_names_the_call_and_leaves_it_running(pair: Ranks) -> None:
    (text,) = pair.run(_impatient, on=[0])
    assert "rank 0" in text
    assert "all_gather of 2 tensors, the first of 7 Float32" in text
    assert "20 ms" in text
    pair.run(_gather, on=[1])
    assert pair.run(_wait_again, on=[0]) == [14]


def _set_stacks(size: int) -> int:
    """Sets the stack size of all threads that are made from now on, by any library. Returns the size before."""
    libc = ctypes.CDLL(None)
    attributes, before = ctypes.create_string_buffer(64), ctypes.c_size_t()  # at least as large as pthread_attr_t
    assert libc.pthread_getattr_default_np(attributes) == 0
    assert libc.pthread_attr_getstacksize(attributes, ctypes.byref(before)) == 0
    assert libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(size)) == 0
    assert libc.pthread_setattr_default_np(attributes) == 0
    return before.value


def _nested_without_threads(rank: int) -> None:
    _nested(rank)  # what can be made is made
    before = _set_stacks(1 << 47)  # more than addresses reach
    try:
        with pytest.raises(RuntimeError):
            threading.Thread(target=int).start()
        _nested(rank)
    finally:
        _set_stacks(before)


def test_callbacks_go_on_where_no_thread_can_be_made() -> None:
    with Ranks(2) as ranks:
        ranks.init()
        ranks.run(_nested_without_threads)


def _after_a_block_that_an_exception_ended(_rank: int) -> list[float]:
    cpu = torch.device("cpu")
    with contextlib.suppress(ZeroDivisionError), dist._coalescing_manager(device=cpu):
        raise ZeroDivisionError
    tensor = torch.ones(3)
    with dist._coalescing_manager(device=cpu, async_ops=True) as block:
        dist.all_reduce(tensor)
    block.wait()
    values: list[float] = tensor.tolist()
    return values


def test_a_coalescing_block_that_an_exception_ended_holds_up_no_other(pair: Ranks) -> None:
    assert pair.run(_after_a_block_that_an_exception_ended) == [[2.0] * 3] * 2
