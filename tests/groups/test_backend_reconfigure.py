"""Groups whose members change in place: handles instead of a store, deaths, joins, aborts, and what is refused."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from crews import Crew, Members, begin, handle_of, join
from failures import holdings
from failures.holdings import Holdings
from lab_programs import needs_namespaces
from ranks import TIMEOUT_SECONDS, Ranks, all_reduce_ones, backend_of, on_ranks

from fairring import _core, lab
from fairring.backend import create
from fairring.lab import namespaces
from fairring.members import LastComplete, Mark, last_complete, mark

if not hasattr(dist.distributed_c10d, "_reconfigure"):
    pytest.skip("PyTorch before 2.15 has no reconfigure", allow_module_level=True)

from torch._C._distributed_c10d import ErrorType, ReconfigureOptions

c10d: Any = dist.distributed_c10d


def _use(_rank: int) -> list[int]:
    """Calls of several kinds; returns the sum of all ranks' numbers, and the rank before this one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    total = torch.full((5,), rank + 1.0)
    dist.all_reduce(total)
    parts = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(parts, torch.tensor([rank]))
    assert [part.item() for part in parts] == list(range(size))
    before = torch.tensor([rank])
    if size > 1:
        works: list[Any] = [dist.isend(torch.tensor([rank]), (rank + 1) % size), dist.irecv(before, (rank - 1) % size)]
        for work in works:
            work.wait()
    dist.barrier()
    return [int(total[0].item()), int(before.item())]


class Trio(Crew):
    """Three ranks; nothing goes by way of the store."""

    def __init__(self) -> None:
        super().__init__(Ranks(3), _use)

    def join(self, members: list[int]) -> list[Any]:
        used = super().join(members)
        total = sum(range(1, len(members) + 1))
        assert used == [[total, (members.index(member) - 1) % len(members)] for member in sorted(members)]
        return used


@pytest.fixture(scope="module")
def trio() -> Iterator[Trio]:
    trio = Trio()
    yield trio
    assert trio.ranks.close() == [0] * 3


@pytest.fixture
def fresh() -> Iterator[Trio]:
    """For a single test: ranks that die, or are left in the middle of something."""
    trio = Trio()
    yield trio
    trio.ranks.kill()


def _expect_no_members(rank: int) -> None:
    other = (rank + 1) % 3
    calls: list[Any] = [lambda: dist.all_reduce(torch.ones(1)), lambda: dist.send(torch.ones(1), other), dist.barrier]
    for call in calls:
        with pytest.raises(dist.DistBackendError, match=r"has no members now.*give it members by reconfigure"):
            call()


def test_calls_before_the_first_reconfiguration_are_refused(fresh: Trio) -> None:
    fresh.ranks.run(_expect_no_members)
    fresh.join([0, 1, 2])


def _join_as_a_set(rank: int, uuid: int, handles: list[str]) -> Members:
    return join(rank, uuid, set(handles))


def test_a_set_of_handles_keeps_the_ranks_order_and_puts_newcomers_last(fresh: Trio) -> None:
    fresh.join([2, 1])
    handles = fresh.handles([0, 1, 2])
    assert fresh.ranks.run(_join_as_a_set, fresh.uuid(), handles) == [(2, 3), (1, 3), (0, 3)]
    fresh.ranks.run(_use)


def test_two_halves_may_be_groups_at_once_and_join_again(trio: Trio) -> None:
    for uuid, members in ((101, [0]), (102, [1, 2])):
        trio.ranks.run(join, uuid, trio.handles(members), on=members)
    started = trio.ranks.start(_use, on=[1, 2])
    assert trio.ranks.run(_use, on=[0]) == [[1, 0]]
    assert trio.ranks.finish(started) == [[3, 1], [3, 0]]
    trio.join([0, 1, 2])


def _refused(rank: int, handles: list[str]) -> None:
    own, other, third = handles[rank], handles[(rank + 1) % 3], handles[(rank + 2) % 3]
    for members, text in (
        ([other, third], "own handle is not among the 2 handles"),
        ([own, other, other], "handles 1 and 2 are of the same rank"),
        ([own, "a stranger's"], "'a stranger's' is no handle of this version"),
        ([own, other.replace("fairring facts", "fairring words")], "is no handle of this version"),
    ):
        with pytest.raises(dist.DistBackendError, match=text):
            c10d._reconfigure(500, members)
    join(rank, 501 + rank, [own])
    with pytest.raises(dist.DistBackendError, match=f"uuid {501 + rank} was already used"):
        c10d._reconfigure(501 + rank, [own])
    assert _use(rank) == [1, 0]  # what was refused has changed nothing


def test_what_can_not_be_a_group_is_refused_and_changes_nothing(trio: Trio) -> None:
    trio.ranks.run(_refused, trio.handles([0, 1, 2]))
    trio.join([0, 1, 2])


TOLD = threading.Event()


def _register_a_hook(_rank: int) -> None:
    TOLD.clear()
    backend_of().register_abort_hook(7, TOLD.set)


def _abort(rank: int) -> None:
    backend = backend_of()
    under_way = dist.all_reduce(torch.ones(1), async_op=True) if rank > 0 else None
    backend.abort()
    if under_way is not None:
        with pytest.raises(dist.DistBackendError, match="aborted its process group"):
            under_way.wait()
    assert TOLD.wait(60)
    backend.unregister_abort_hook(7)
    assert backend.get_error() == ErrorType.SUCCESS
    _expect_no_members(rank)


def test_an_abort_is_over_with_the_next_reconfiguration(trio: Trio) -> None:
    trio.join([0, 1, 2])
    trio.ranks.run(_register_a_hook)  # of all, before one of them aborts: the others learn of that
    trio.ranks.run(_abort)
    trio.join([0, 1, 2])


def _expect_missing(rank: int, uuid: int, handles: list[str], text: str, seconds: float = 1) -> None:
    with pytest.raises(dist.DistBackendError, match=text):
        join(rank, uuid, handles, seconds)
    assert backend_of().get_error() != ErrorType.SUCCESS


def test_who_does_not_come_is_named_and_the_others_go_on(trio: Trio) -> None:
    handles = trio.handles([0, 1, 2])
    text = r"Timed out: reconfigure.* in group .* \(uuid \d+\) did not finish within its timeout of 1 s.* rank 2 "
    trio.ranks.run(_expect_missing, trio.uuid(), handles, text, on=[0, 1])
    trio.join([0, 1])
    trio.join([0, 1, 2])


def _die(_rank: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_handle_of_a_process_that_has_died_ends_the_wait_at_once(fresh: Trio) -> None:
    handles = fresh.handles([0, 1, 2])
    fresh.ranks.start(_die, on=[2])
    fresh.ranks._processes[2].join()
    text = r"rank 2 \(.*\) died, or ended, before group .* \(uuid \d+\) was connected"
    fresh.ranks.run(_expect_missing, fresh.uuid(), handles, text, 60, on=[0, 1])
    fresh.join([0, 1])


UNDER_WAY: list[Any] = []


def _begin_a_call(_rank: int) -> Mark:
    before = mark()
    tensor = torch.full((5,), 7.0)
    UNDER_WAY[:] = [tensor, dist.all_reduce(tensor, async_op=True)]
    _core.traffic(backend_of())  # waits until the loop has the call
    return before


def _expect_it_untouched(_rank: int) -> None:
    tensor, work = UNDER_WAY
    text = (
        r"rank 0 \(.*\) died.*; call 5, all_reduce SUM of 5 Float32, was under way: "
        "its tensors are as they were before it"
    )
    with pytest.raises(dist.DistBackendError, match=text):
        work.wait()
    assert tensor.tolist() == [7.0] * 5


def _last_complete(_rank: int) -> LastComplete | None:
    return last_complete()


def test_a_call_that_a_death_cut_off_counts_nowhere_and_says_so(fresh: Trio) -> None:
    fresh.join([0, 1, 2])
    assert fresh.ranks.run(_last_complete) == [None] * 3
    marks = fresh.ranks.run(_begin_a_call, on=[1, 2])
    fresh.ranks.signal(0, signal.SIGKILL)
    fresh.ranks.run(_expect_it_untouched, on=[1, 2])
    fresh.join([2, 1])
    assert fresh.ranks.run(_last_complete, on=[1, 2]) == [LastComplete(one, [4, 4]) for one in marks]


def _reconfigure_over_a_call(rank: int, uuid: int, handles: list[str]) -> Members:
    under_way = dist.all_reduce(torch.ones(1), async_op=True) if rank == 1 else None
    members = join(rank, uuid, handles)
    if under_way is not None:
        # Or its peer leaves before it does.
        with pytest.raises(dist.DistBackendError, match=r"while all_reduce.* was not finished|rank \d \(.*\) has left"):
            under_way.wait()
    return members


def test_a_call_under_way_ends_with_an_error_when_its_rank_goes_on(trio: Trio) -> None:
    trio.join([0, 1, 2])
    handles = trio.handles([1, 2])
    assert trio.ranks.run(_reconfigure_over_a_call, trio.uuid(), handles, on=[1, 2]) == [(0, 2), (1, 2)]
    trio.join([0, 1, 2])


def _sum_of_threads(_rank: int) -> list[int]:
    """Three ranks in this process: each rank's sum of two groups' calls."""
    made = []
    for _ in range(3):
        options = c10d._DistributedBackendOptions()
        options.store, options.group_rank, options.group_size = dist.HashStore(), 0, 1
        options.timeout, options.group_id, options.enable_reconfigure = timedelta(seconds=60), "threads", True
        made.append(create(options, None))
    sums = [torch.zeros(1 << 10) for _ in made]

    def take_part(rank: int) -> None:
        for uuid in range(2):
            members = ReconfigureOptions()
            members.uuid, members.handles = uuid, handles
            made[rank].reconfigure(members).wait()
            tensor = torch.full((1 << 10,), rank + 1.0)
            made[rank].allreduce([tensor]).wait()
            sums[rank] += tensor

    handles = [backend.get_reconfigure_handle() for backend in made]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(take_part, range(3)))
        list(threads.map(lambda backend: backend.shutdown(), made))
    assert all((each == each[0]).all() for each in sums)
    return [int(each[0].item()) for each in sums]


def test_ranks_of_a_group_may_be_threads_of_one_process() -> None:
    ranks = Ranks(1)
    assert ranks.run(_sum_of_threads) == [[12, 12, 12]]
    assert ranks.close() == [0]


@on_ranks("pair")
def test_a_group_that_was_not_made_for_it_says_so() -> None:
    assert not c10d._supports_reconfigure()
    for call in (lambda: c10d._get_reconfigure_handle(), lambda: c10d._reconfigure(1, [])):
        with pytest.raises(dist.DistBackendError, match="enable_reconfigure=True"):
            call()


def test_handles_let_nobody_in_who_lacks_the_secret_of_the_job(tmp_path: Any) -> None:
    """One of two ranks has all handles, but another secret file."""
    files = []
    for name in ("ours", "theirs"):
        files.append({"FAIRRING_SECRET_FILE": str(tmp_path / name)})
        (tmp_path / name).write_text(name * 8)
    ranks = Ranks(2, of_rank=files)
    handles = ranks.run(begin, 2, ranks.store.port)
    ranks.run(_expect_missing, 1, handles, "did not finish within its timeout of 1 s")
    ranks.kill()


ROUNDS = 200
LOOKS = 10


def _churn(rank: int, handles: list[str], rounds: range) -> Holdings:
    """That many reconfigurations, every other one without rank 2; returns the holdings in the living group.

    They are the least of the last rounds, for a group that has just been left may still be ending in the background.
    """
    looks = []
    for uuid in rounds:
        if uuid % 2 == 0 or rank < 2:
            join(rank, uuid, handles[: 3 - uuid % 2])
            all_reduce_ones(rank, 1 << 10)
            if uuid >= rounds.stop - LOOKS:
                gc.collect()
                looks.append(holdings.take())
    return holdings.least(looks)


def _end(_rank: int) -> Holdings:
    dist.destroy_process_group()
    gc.collect()
    return holdings.take()


@pytest.mark.slow
def test_what_a_rank_holds_does_not_grow_with_reconfigurations() -> None:
    """Not in the living group, and not after its end, beside a group that was reconfigured a tenth as often."""
    ranks = Ranks(3)
    early = range(ROUNDS // 10)
    handles = ranks.run(begin, 3, ranks.store.port)
    ranks.run(_churn, handles, early)
    ended = ranks.run(_end)
    handles = ranks.run(begin, 3, ranks.store.port)
    living = ranks.run(_churn, handles, early)
    living_on = ranks.run(_churn, handles, range(early.stop, ROUNDS))
    ended_later = ranks.run(_end)
    for before, after in (*zip(living, living_on, strict=True), *zip(ended, ended_later, strict=True)):
        assert after.beyond(before) == {}
        assert after.memory - before.memory < 8 << 20
    assert ranks.close() == [0] * 3


def _enter_machine(rank: int, pids: list[int]) -> None:
    """pids: of a process on each machine of the lab. This process still has one thread."""
    namespaces.enter_those_of(pids[rank])


def _begin_alone(_rank: int) -> str:
    dist.init_process_group("fairring", store=dist.HashStore(), rank=0, world_size=1, enable_reconfigure=True)
    return handle_of(0)


def _failed_connections(pid: int) -> int:
    """The number of failed connection attempts on the machine on which that process runs."""
    names, values = (
        line.split() for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line.startswith("Tcp:")
    )
    return int(values[names.index("AttemptFails")])


@needs_namespaces
@pytest.mark.slow
def test_members_meet_though_the_network_has_given_one_up_a_moment_before_its_link_is_back() -> None:
    with lab.Lab(["sleep", "infinity"], [1, 1], "none", network="namespaces") as cluster:
        ranks = Ranks(2, of_rank=[{"TP_SOCKET_IFNAME": "eth0"}] * 2)
        ranks.run(_enter_machine, [cluster.pid(machine) for machine in range(2)])
        handles = ranks.run(_begin_alone)
        cluster.set_link(0, False)
        before = _failed_connections(cluster.pid(1))
        meeting = ranks.start(join, 1, handles)
        until = time.monotonic() + TIMEOUT_SECONDS
        while _failed_connections(cluster.pid(1)) == before:
            assert time.monotonic() < until, "the kernel has not given the other machine up"
            time.sleep(0.01)
        cluster.set_link(0, True)
        ranks.finish(meeting)
        ranks.kill()
