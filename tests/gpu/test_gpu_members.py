"""CUDA tensors in groups whose members change: after deaths, by shrink_group, and as members leave, come and go."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from crews import Crew
from gpu_machines import carried, machines, start
from ranks import Ranks, backend_of

from fairring import members

pytestmark = pytest.mark.gpu

c10d: Any = dist.distributed_c10d
LAYOUT = "2+1+1"  # level 0 on the first machine; without the last rank machines are still unequal
ELEMENTS = emulated_devices.fewer(4 << 20) + 5  # several slices
GARBAGE = "was under way: its tensors may hold garbage where its result belongs"


def _noise(rank: int) -> torch.Tensor:
    """The same on the CPU and on the device; no other order of sums gives the bits."""
    return torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(rank)) * 1000


def _use(_rank: int) -> None:
    """Fairring's calls and NCCL's, each to the bits of the same call on the CPU."""
    rank, size = dist.get_rank(), dist.get_world_size()
    here, there = _noise(rank), _noise(rank).cuda()
    spare = ELEMENTS - ELEMENTS % size
    for tensor in (here, there):
        dist.all_reduce(tensor)
    assert torch.equal(there.cpu(), here)
    before = carried()
    parts = [torch.empty(spare // size, device=one.device) for one in (here, there)]
    wholes = [torch.empty(spare, device=one.device) for one in (here, there)]
    for whole, part, tensor in zip(wholes, parts, (here, there), strict=True):
        dist.reduce_scatter_tensor(part, tensor[:spare])
        dist.all_gather_into_tensor(whole, part)
    assert torch.equal(wholes[1].cpu(), wholes[0])
    assert size < 3 or carried() > before
    dist.broadcast(there, size - 1)  # NCCL's
    other = torch.full_like(there, float(rank))
    dist.all_reduce(other, op=dist.ReduceOp.MAX)
    assert torch.equal(other, torch.full_like(other, size - 1.0))


UNDER_WAY: list[Any] = []  # tensors, and their works


def _begin_calls(_rank: int) -> None:
    """Three, which the last rank never makes."""
    tensors = [_noise(number).cuda() for number in range(3)]
    UNDER_WAY[:] = [tensors, [dist.all_reduce(tensor, async_op=True) for tensor in tensors]]
    for work in UNDER_WAY[1]:
        work.wait()  # the stream waits, not the host


def _errors_of_calls(_rank: int) -> list[str]:
    """What those end with, and one that is made later."""
    tensors, works = UNDER_WAY
    torch.cuda.synchronize()  # the device came through its gates
    errors = []
    for call in (*(work.wait for work in works), lambda: dist.all_reduce(tensors[0])):
        with pytest.raises(dist.DistBackendError) as raised:
            call()
        errors.append(str(raised.value))
    assert all(work.is_completed() and not work.is_success() for work in works)
    return errors


def _first_calls(rank: int) -> None:
    _use(rank)
    torch.cuda.synchronize()


def _kill(ranks: Ranks, *victims: int) -> None:
    for victim in victims:
        ranks.kill_one(victim)


def _shrink(_rank: int, excluded: list[int], flags: int = 0) -> tuple[int, int]:
    members.shrink_group(excluded, shrink_flags=flags)
    return dist.get_rank(), dist.get_world_size()


def _check_errors(texts: Sequence[str], victim: int) -> None:
    died = rf"rank {victim} \(.*\) died"
    *in_flight, later = texts
    for text in in_flight:
        assert re.search(rf"{died}.*; call \d+, all_reduce SUM of {ELEMENTS} Float32 on CUDA, {GARBAGE}", text), text
    assert re.search(died, later), later
    assert GARBAGE not in later, later


def test_survivors_of_a_machine_shrink_and_go_on() -> None:
    ranks = start(LAYOUT)
    ranks.run(_first_calls)
    survivors = [0, 1, 2]
    ranks.run(_begin_calls, on=survivors)
    _kill(ranks, 3)
    for texts in ranks.run(_errors_of_calls, on=survivors):
        _check_errors(texts, 3)
    assert ranks.run(_shrink, [3], on=survivors) == [(0, 3), (1, 3), (2, 3)]
    ranks.run(_use, on=survivors)
    _kill(ranks, 2)  # now one machine is left, all of whose calls are NCCL's, and then one rank
    assert ranks.run(_shrink, [2], c10d.SHRINK_ABORT, on=[0, 1]) == [(0, 2), (1, 2)]
    ranks.run(_use, on=[0, 1])
    assert ranks.run(_shrink, [1], on=[0]) == [(0, 1)]
    ranks.run(_use, on=[0])
    ranks.kill()


def _shrink_while_a_member_lives(rank: int) -> float:
    """A call is under way then, which is waited for."""
    tensor = torch.full((ELEMENTS,), rank + 1.0, device="cuda")
    work: Any = dist.all_reduce(tensor, async_op=True)
    members.shrink_group([3])
    work.wait()
    assert members.last_complete() == members.LastComplete(members.Mark(0, 1), [1, 1, 1])
    return tensor.amax().item()


def _reduce(rank: int) -> None:
    dist.all_reduce(torch.full((ELEMENTS,), rank + 1.0, device="cuda"))
    torch.cuda.synchronize()


def test_calls_under_way_end_well_before_a_shrink_that_does_not_abort_them() -> None:
    ranks = start(LAYOUT)
    shrinking = ranks.start(_shrink_while_a_member_lives, on=[0, 1, 2])
    ranks.run(_reduce, on=[3])
    assert ranks.finish(shrinking) == [10.0] * 3
    ranks.run(_use, on=[0, 1, 2])
    ranks.kill()


def _reduce_until_a_death(_rank: int) -> str:
    with pytest.raises(dist.DistBackendError) as raised:
        dist.all_reduce(torch.ones(ELEMENTS, device="cuda"))
    return str(raised.value)


def _meet(_rank: int) -> None:
    """By a call for CPU tensors, which makes the group and nothing of NCCL's."""
    dist.all_reduce(torch.ones(1))


def test_a_rank_that_dies_before_its_first_call_on_devices_keeps_nobody_in_nccl() -> None:
    """Rank 1's machine waits for it in NCCL."""
    ranks = start(LAYOUT)
    ranks.run(_meet)
    waiting = ranks.start(_reduce_until_a_death, on=[0])
    _kill(ranks, 1)
    (text,) = ranks.finish(waiting)
    assert re.search(r"rank 1 \(.*\) died", text), text
    ranks.kill()


@pytest.fixture
def crew() -> Iterator[Crew]:
    if not hasattr(c10d, "_reconfigure"):
        pytest.skip("of a later PyTorch: before 2.15 there is no reconfigure")
    crew = Crew(machines(LAYOUT), _use)
    yield crew
    crew.ranks.kill()


def _abort(_rank: int) -> None:
    backend_of(device="cuda").abort()
    torch.cuda.synchronize()  # nothing on the device waits for anybody


def _free_memory(_rank: int) -> int:
    """Of the device, once all that groups had there has been given back."""
    dist.destroy_process_group()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def test_members_leave_join_take_anothers_place_and_stand_alone(crew: Crew) -> None:
    crew.join([0, 1, 2])
    crew.join([2, 1])  # one left
    crew.join([3, 0, 2, 1])  # others join
    survivors = [0, 1, 2]
    crew.ranks.run(_begin_calls, on=survivors)
    _kill(crew.ranks, 3)
    for texts in crew.ranks.run(_errors_of_calls, on=survivors):
        _check_errors(texts, 0)
    crew.join([1])
    crew.join(survivors)


def _begin_calls_of_both(rank: int) -> None:
    """Fairring's, which the last rank never makes, and NCCL's likewise."""
    _begin_calls(rank)
    dist.broadcast(torch.ones(10, device="cuda"), 2, async_op=True)


def _expect_aborted(_rank: int) -> None:
    for work in UNDER_WAY[1]:
        with pytest.raises(dist.DistBackendError, match="aborted its process group"):
            work.wait()


def test_an_abort_is_over_with_the_next_reconfiguration(crew: Crew) -> None:
    for _ in range(2):
        crew.join([0, 1, 2])
        crew.ranks.run(_begin_calls_of_both, on=[0, 1])
        crew.ranks.run(_abort, on=[0, 1, 2])
        crew.ranks.run(_expect_aborted, on=[0, 1])
    crew.join([0, 2, 1])


def _expect_unfinished(_rank: int) -> None:
    for work in UNDER_WAY[1]:
        with pytest.raises(dist.DistBackendError, match=r"while all_reduce.* was not finished|rank \d \(.*\) has left"):
            work.wait(timedelta(seconds=60))


def test_calls_under_way_end_with_an_error_when_their_rank_goes_on(crew: Crew) -> None:
    crew.join([0, 1, 2])
    crew.ranks.run(_begin_calls, on=[0])
    crew.join([0, 2])
    crew.ranks.run(_expect_unfinished, on=[0])


def test_the_death_of_the_one_that_holds_the_members_store_ends_a_first_call(crew: Crew) -> None:
    crew.meet([0, 2, 3])
    _kill(crew.ranks, 0)
    for text in crew.ranks.run(_reduce_until_a_death, on=[2, 3]):
        assert re.search(r"rank 0 \(.*\) died", text), text
    crew.join([3, 2])


@emulated_devices.only_there  # a real device is shared with other processes
def test_nothing_of_former_members_is_left_on_the_device(crew: Crew) -> None:
    free: list[list[int]] = []
    for rounds in (1, 4):
        if free:
            crew.begin(on=[0, 1, 2])
        for _ in range(rounds):
            crew.join([0, 1, 2])
        free.append(crew.ranks.run(_free_memory, on=[0, 1, 2]))
    assert free[0] == free[1]
