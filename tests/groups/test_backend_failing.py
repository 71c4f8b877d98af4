"""The errors that users see when something is wrong: they name who, what and what to do."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from lab_programs import TIMEOUT_SECONDS, program
from ranks import Ranks, all_reduce_ones, backend_of, init_group
from standard_error import standard_error

from fairring import _core, lab


def _abort(_rank: int) -> str:
    work = dist.all_reduce(torch.ones(3), async_op=True)
    backend_of().abort()
    with pytest.raises(dist.DistBackendError) as caught:
        work.wait()
    with pytest.raises(RuntimeError):
        work.get_future().wait()
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(3))
    return str(caught.value)


def test_abort_ends_the_waits_and_the_calls_to_come(strangers: Ranks) -> None:
    strangers.init()
    strangers.run(all_reduce_ones, 3)
    (text,) = strangers.run(_abort, on=[0])
    assert "rank 0 aborted" in text
    assert strangers.close() == [0, 0]


def _abort_first_use(rank: int, size: int, port: int) -> float:
    init_group(rank, size, port, "fairring", 60)
    began = time.monotonic()
    timer = threading.Timer(0.5, backend_of().abort)  # rank 1 never comes
    timer.start()
    with pytest.raises(dist.DistBackendError, match="rank 0 aborted"):
        dist.all_reduce(torch.ones(3))
    return time.monotonic() - began


def test_abort_frees_a_first_use_that_waits_for_ranks(strangers: Ranks) -> None:
    (seconds,) = strangers.run(_abort_first_use, 2, strangers.store.port, on=[0])
    assert seconds < 10


def _hear_of_it(rank: int, size: int, port: int) -> str:
    init_group(rank, size, port, "fairring", 60)
    if rank == 0:
        backend_of().abort()
    with pytest.raises(dist.DistBackendError) as caught:
        dist.barrier()
    return str(caught.value)


def test_a_rank_that_waits_for_others_reads_of_an_abort_in_the_store(strangers: Ranks) -> None:
    texts = strangers.run(_hear_of_it, 3, strangers.store.port)  # rank 2 never comes
    assert "rank 0 aborted" in texts[1]


def _after_destroy(_rank: int) -> None:
    backend = backend_of()
    dist.destroy_process_group()
    with pytest.raises(dist.DistBackendError, match="has ended"):
        backend.allreduce([torch.ones(1)], dist.AllreduceOptions())


def test_a_destroyed_group_refuses_calls(strangers: Ranks) -> None:
    strangers.init()
    strangers.run(_after_destroy)


def test_the_secret_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"0123456789abcdef")
    with Ranks(2, {"FAIRRING_SECRET_FILE": str(path)}) as ranks:
        ranks.init()
        assert ranks.run(all_reduce_ones, 3) == [6, 6]


def test_an_error_ends_a_process_that_never_asks_where_it_is_told_to() -> None:
    with lab.Lab(program("outlived"), [2], network="none", env={"FAIRRING_ON_ERROR": "exit"}) as running:
        result = running.wait(TIMEOUT_SECONDS)
    assert result.exit_codes == [1, 7], result.output
    assert "rank 1" in result.stderr[0]
    assert "FAIRRING_ON_ERROR=exit" in result.stderr[0]


def _outlive(rank: int) -> list[str]:
    """What rank 0 logs when rank 1 dies, in a job of CPU tensors."""
    dist.all_reduce(torch.ones(3))
    dist.barrier()
    if rank == 1:
        os._exit(3)
    with standard_error() as lines:
        with pytest.raises(dist.DistBackendError):
            dist.all_reduce(torch.ones(3))
        dist.destroy_process_group()
    return lines


def _end_by_an_exception(rank: int) -> str:
    """The error of rank 0's call, which rank 1 does not make any more."""
    dist.all_reduce(torch.ones(3))
    if rank == 1:
        _core.end_all(failed=True)
        return ""
    with pytest.raises(dist.DistBackendError) as caught:
        dist.all_reduce(torch.ones(3))
    return str(caught.value)


def test_calls_on_devices_that_nobody_makes_change_no_error() -> None:
    for function, check in (
        (_outlive, lambda lines: not any("garbage" in line for line in lines)),
        (_end_by_an_exception, lambda text: "has left the group" in text),
    ):
        ranks = Ranks(2, {"FAIRRING_CUDA": "auto"})
        ranks.init()
        begun = ranks.start(function)
        (result,) = ranks.finish(begun[:1])
        ranks.kill()
        assert check(result), result
