"""Messages of CPU tensors between two ranks: Fairring's own, on connections that are made when they are needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from certificates import Authority
from forked_programs import forked_program
from lab_programs import needs_namespaces
from ranks import Ranks, backend_of, on_ranks

from fairring import lab

MIB = 1 << 20
MACHINES = {"one machine": "aaa", "machines of their own": "abc", "two machines": "aab"}

kept: dict[str, Any] = {}  # what a rank keeps from one call to the next


@contextmanager
def _job(machines: str, timeout_seconds: float = 60) -> Iterator[Ranks]:
    with Ranks(len(machines), of_rank=[{"FAIRRING_MACHINE": name} for name in machines]) as ranks:
        ranks.init(timeout_seconds=timeout_seconds)
        yield ranks


@pytest.fixture(scope="module", params=list(MACHINES.values()), ids=list(MACHINES))
def job(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    with _job(request.param) as ranks:
        yield ranks
        assert ranks.close() == [0] * ranks.size


@on_ranks("job")
def test_tensors_may_be_of_any_dtype_and_need_not_be_contiguous(rank: int) -> None:
    made: list[torch.Tensor] = [
        torch.arange(24, dtype=torch.int16).reshape(4, 6).t(),
        torch.arange(7) % 2 == 0,
        torch.arange(6, dtype=torch.float64).reshape(3, 2).to(torch.complex128),
        torch.arange(5).to(torch.float8_e4m3fn),
        torch.empty(0, dtype=torch.bfloat16),
        torch.tensor(3.0),
    ]
    for tensor in made:
        if rank == 0:
            dist.send(tensor, 1)
        elif rank == 1:
            room = torch.zeros(tensor.numel() * 2, dtype=tensor.dtype)[::2].reshape(tensor.shape)
            dist.recv(room, 0)
            assert torch.equal(room, tensor)


@on_ranks("job")
def test_a_message_may_be_shorter_than_its_receive(rank: int) -> None:
    if rank == 0:
        for _ in range(2):
            dist.send(torch.ones(2), 1)
        return
    if rank == 1:
        room, apart = torch.full((4,), 7.0), torch.full((8,), 7.0)
        dist.recv(room, 0)
        dist.recv(apart[::2], 0)
        assert room.tolist() == [1, 1, 7, 7]
        assert apart.tolist() == [1, 7, 1, 7, 7, 7, 7, 7]


def _too_long(rank: int, elements: int) -> str:
    work: Any = None
    if rank == 0:
        work = dist.isend(torch.ones(elements), 1, tag=5)
    elif rank == 1:
        work = dist.irecv(torch.ones(elements - 1), 0, tag=5)
    text = ""
    try:
        if work:
            work.wait()
    except dist.DistBackendError as error:
        text = str(error)
    dist.all_reduce(torch.ones(3))  # the group goes on
    return text


@pytest.mark.parametrize("elements", [10, MIB])
def test_a_message_that_is_too_long_is_an_error_of_its_two_calls(job: Ranks, elements: int) -> None:
    texts = job.run(_too_long, elements)
    words = f"rank 0 sent {4 * elements} bytes with tag 5 to rank 1, whose receive has room for {4 * elements - 4}"
    assert words in texts[1]
    assert (words in texts[0]) == (elements == MIB), "a small message has gone when its receive refuses it"
    assert texts[2] == ""


@on_ranks("job")
def test_works_have_futures(rank: int) -> None:
    if rank == 0:
        work: Any = dist.isend(torch.ones(3), 1)
    elif rank == 1:
        work = dist.irecv(torch.zeros(3), 0)
    else:
        return
    assert work.get_future().wait()[0].tolist() == [1, 1, 1]
    assert work.is_completed()
    assert work.result()[0].tolist() == [1, 1, 1]
    if rank == 1:
        assert work._source_rank() == 0


@on_ranks("pair")
def test_calls_that_are_wrong_in_themselves_leave_the_group_alone(rank: int) -> None:
    backend = backend_of()
    with pytest.raises(ValueError, match=f"between rank {rank} and rank {rank}"):
        backend.send([torch.ones(1)], rank, 0)
    with pytest.raises(ValueError, match=f"between rank {rank} and rank 9"):
        backend.recv([torch.ones(1)], 9, 0)
    with pytest.raises(ValueError, match="dense tensors"):
        backend.send([torch.ones(1).to_sparse()], 1 - rank, 0)
    dist.barrier()


def _impatient(_rank: int) -> list[str]:
    texts = []
    for source in (1, None):
        work = kept[str(source)] = dist.irecv(torch.zeros(2), source, tag=0 if source else 1)
        with pytest.raises(dist.DistBackendError) as caught:
            work.wait(timedelta(milliseconds=20))  # type: ignore[union-attr]
        texts.append(str(caught.value))
    return texts


def _send_both(_rank: int) -> None:
    for tag in (0, 1):
        dist.send(torch.ones(2), 0, tag=tag)


def _wait_again(_rank: int) -> float:
    kept["1"].wait()
    kept["None"].wait()
    return float(kept["None"].result()[0].sum())


def test_a_wait_that_runs_out_names_who_has_not_sent_and_leaves_the_receive(pair: Ranks) -> None:
    (texts,) = pair.run(_impatient, on=[0])
    assert "Timed out: recv of 2 Float32 from rank 1" in texts[0]
    assert "20 ms" in texts[0]
    assert "Timed out: recv from any rank of 2 Float32" in texts[1]
    pair.run(_send_both, on=[1])
    assert pair.run(_wait_again, on=[0]) == [2]


def _receive_in_vain(_rank: int, source: int) -> str:
    with pytest.raises(dist.DistBackendError) as caught:
        dist.recv(torch.zeros(2), source)
    return str(caught.value)


def test_a_receive_from_a_rank_that_makes_no_call_ends_with_the_groups_timeout() -> None:
    with _job("abc", timeout_seconds=2) as ranks:
        texts = ranks.run(_receive_in_vain, 1, on=[0, 2])
    for text in texts:
        assert "Timed out: recv of 2 Float32 from rank 1" in text
        assert "rank 1 (" in text


def _exit(_rank: int) -> None:
    os._exit(0)


@pytest.mark.parametrize(("machines", "dead"), [("aa", 1), ("ab", 0)])
def test_a_rank_that_dies_before_its_first_call_is_named_too(machines: str, dead: int) -> None:
    with _job(machines) as ranks:
        waiting = ranks.start(_receive_in_vain, dead, on=[1 - dead])
        ranks.start(_exit, on=[dead])
        (text,) = ranks.finish(waiting)
    assert f"rank {dead} (" in text


def _unreceived(rank: int) -> None:
    if rank == 0:
        kept["large"] = dist.isend(torch.zeros(MIB), 1)
        dist.send(torch.zeros(5), 1)
    else:
        kept["never"] = dist.irecv(torch.zeros(3), 0, tag=9)


def _destroy(_rank: int) -> None:
    dist.destroy_process_group()


@pytest.mark.parametrize("machines", ["aa", "ab"])
def test_groups_end_with_messages_that_nobody_sent_or_received(machines: str) -> None:
    with _job(machines) as ranks:
        ranks.run(_unreceived)
        ranks.run(_destroy)
        assert ranks.close() == [0, 0]


@needs_namespaces
def test_messages_travel_under_tls(tmp_path: Path) -> None:
    env = Authority(tmp_path).issue("rank")
    with lab.Lab(forked_program("messages"), [1, 2], "none", env=env) as running:
        result = running.wait(150)
    assert result.stdout == ["exact\n"] * 3, result.output


# --- monitored_barrier


def _monitored(_rank: int, seconds: float, waits_for_all: bool) -> str:
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=seconds), wait_all_ranks=waits_for_all)
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("waits_for_all", [False, True])
def test_a_monitored_barrier_names_who_is_missing_and_the_group_goes_on(waits_for_all: bool) -> None:
    with _job("aabc") as ranks:
        texts = ranks.run(_monitored, 1, waits_for_all, on=[0, 1])
        who = "Ranks 2, 3" if waits_for_all else "Rank 2"
        assert f"{who} failed to pass monitoredBarrier in 1000 ms" in texts[0]
        assert "Rank 1 successfully reached monitoredBarrier" in texts[1]
        late = ranks.start(_monitored, 1, waits_for_all, on=[2, 3])
        assert all("successfully reached monitoredBarrier" in text for text in ranks.finish(late))
        assert ranks.run(_monitored, 60, waits_for_all) == [""] * 4
