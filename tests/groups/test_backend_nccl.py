"""The settings and requests that a group hands to NCCL beside its calls, on any machine.

Gloo's own backend stands in NCCL's place: it is made without a device, and refuses by its name what only NCCL has.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, init_group
from standard_error import standard_error
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed import distributed_c10d as c10d

from fairring import _core, backend

pytestmark = pytest.mark.skipif(not dist.is_nccl_available(), reason="this torch has no NCCL")

NCCLS_OPTIONS: Any = dist.ProcessGroupNCCL.Options if dist.is_nccl_available() else None
GLOO: Any = dist.ProcessGroupGloo  # its options have no types of their own
MADE: list[Any] = []  # the options of each that was made on this rank
IN_NCCLS_PLACE: list[Any] = []  # and itself


class _InNcclsPlace:
    Options = NCCLS_OPTIONS

    def __new__(cls, store: dist.Store, rank: int, size: int, options: Any) -> Any:
        MADE.append(options)
        gloo = GLOO._Options()
        gloo._devices = [GLOO.create_device(hostname="127.0.0.1")]
        gloo._timeout = options._timeout
        made = GLOO(store, rank, size, gloo)
        IN_NCCLS_PLACE.append(made)
        return made


def _init(rank: int, port: int, options: Any) -> Any:
    _replace_nccl()
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group(
        "fairring", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60), pg_options=options
    )
    return _backend(dist.group.WORLD)


def _end() -> None:
    """Not before the other rank's gloo, in NCCL's place here, has connected to this one's."""
    dist.barrier()
    dist.destroy_process_group()


def _replace_nccl() -> None:
    torch_distributed: Any = dist
    torch_distributed.ProcessGroupNCCL = _InNcclsPlace
    dist.Backend._plugins["NCCL"] = dist.Backend._BackendPlugin(_create, extended_api=True)


def _create(asked: Any, options: Any) -> Any:
    """A creator as torch has them for "nccl", from 2.15 on."""
    return _InNcclsPlace(asked.store, asked.group_rank, asked.group_size, options)


def _backend(group: Any) -> Any:
    return group._get_backend(torch.device("cpu"))  # which serves CUDA too


def _memory_of_nccl(backend: Any) -> str:
    """Asks for NCCL's memory, for which NCCL is made; returns what the stand-in says."""
    with pytest.raises(RuntimeError) as refused:
        _ = backend.mem_allocator
    return str(refused.value)


def _with_options(rank: int, port: int) -> None:
    options = dist.ProcessGroupNCCL.Options()
    options.is_high_priority_stream = True
    options.config.min_ctas = 3
    backend = _init(rank, port, options)
    _memory_of_nccl(backend)
    (used,) = MADE
    assert used.is_high_priority_stream
    assert used.config.min_ctas == 3
    assert used._timeout == timedelta(seconds=60)
    assert used.global_ranks_in_group == [0, 1]
    options.config.min_ctas = 4
    _memory_of_nccl(_new_group([0, 1], options))
    assert [used.config.min_ctas for used in MADE] == [3, 4], "a group's options changed when the next was made"
    _memory_of_nccl(_new_group([0, 1], None))
    assert not MADE[2].is_high_priority_stream
    _end()


def _new_group(ranks: list[int], options: Any) -> Any:
    return _backend(dist.new_group(ranks, pg_options=options))


def test_pg_options_reach_nccl(strangers: Ranks) -> None:
    strangers.run(_with_options, strangers.store.port)


def _with_another_timeout(rank: int, port: int) -> None:
    backend = _init(rank, port, None)
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=61))
    _memory_of_nccl(backend)
    assert IN_NCCLS_PLACE.pop().options._timeout == timedelta(seconds=61)
    _end()


def test_nccl_gets_the_timeout_that_was_set_before_it_was_made(strangers: Ranks) -> None:
    strangers.run(_with_another_timeout, strangers.store.port)


def _with_options_of_gloo(rank: int, port: int) -> None:
    with pytest.raises(ValueError, match=r"are to be torch.distributed.ProcessGroupNCCL.Options, not .*_Options"):
        _init(rank, port, GLOO._Options())


def test_pg_options_of_others_are_refused(strangers: Ranks) -> None:
    strangers.run(_with_options_of_gloo, strangers.store.port)


def _allocate(rank: int, port: int) -> None:
    backend = _init(rank, port, None)
    assert not backend.supports_tensor_alloc(torch.device("cpu"))
    assert not backend.supports_tensor_alloc(torch.device("cuda", torch.cuda.device_count()))
    assert not MADE, "NCCL was made for a question about another device"
    assert backend.allocate_tensor(3, dtype=torch.float64, device=torch.device("cpu")).dtype == torch.float64
    assert "gloo does not support" in _memory_of_nccl(backend)
    _end()


def test_memory_of_nccl_is_asked_for_where_there_is_a_device(strangers: Ranks) -> None:
    strangers.run(_allocate, strangers.store.port)


def _ways_that_are_told(rank: int, port: int) -> list[str]:
    """The log lines of four all-reduces of a tensor that only says that it is on a GPU, in two groups."""
    _replace_nccl()
    with standard_error(info=True) as lines:
        init_group(rank, 2, port, "fairring", 60)
        with FakeTensorMode():
            tensor = torch.empty(4, device="cuda")
        for group in (dist.group.WORLD, dist.new_group([0, 1])):
            for _ in range(2):
                with pytest.raises(RuntimeError):  # of Gloo's, which has been given it
                    _backend(group).allreduce([tensor], dist.AllreduceOptions())
    assert len(MADE) == 2
    _end()
    return [line.partition("are ")[2] for line in lines if "all-gathers of CUDA tensors are" in line]


@pytest.mark.slow
def test_why_nccl_has_all_of_it_is_said_once() -> None:
    if _core.why_no_cuda() or torch.cuda.is_available():
        pytest.skip(_core.why_no_cuda() or "there is a CUDA device here")
    ranks = Ranks(2, {"FAIRRING_CUDA": "on"}, of_rank=[{"FAIRRING_MACHINE": name} for name in ("one", "other")])
    for told in ranks.run(_ways_that_are_told, ranks.store.port):
        (way,) = told
        assert re.fullmatch(r"NCCL's as a whole: rank 0 \(.*\): it sees no CUDA device", way)
    ranks.close()


def _group(rank: int, size: int) -> _core.MembershipOptions:
    group = _core.MembershipOptions()
    group.name, group.rank, group.size, group.global_ranks = "a group", rank, size, list(range(size))
    return group


def _error_handling(rank: int, reconfigurable: bool, chosen: str | None) -> str | None:
    """The handling of errors that torch's NCCL would take from the environment, for a group with these settings."""
    name, seen = "TORCH_NCCL_ASYNC_ERROR_HANDLING", []
    with mock.patch.dict(os.environ), mock.patch.object(backend, "_creator_of_nccl") as found:
        if chosen is not None:
            os.environ[name] = chosen
        found.return_value = lambda *_: seen.append(os.environ.get(name))
        make = backend._nccl_maker(None, outlives_errors=reconfigurable)
        make(_group(rank, 1), timedelta(seconds=1), 1, dist.HashStore(), False, 0)
        assert os.environ.get(name) == chosen
    (taken,) = seen
    return taken


@pytest.mark.parametrize(
    ("reconfigurable", "chosen", "taken"), [(False, None, None), (True, None, "2"), (True, "1", "1")]
)
def test_nccl_ends_no_process_whose_group_may_get_other_members(
    reconfigurable: bool, chosen: str | None, taken: str | None
) -> None:
    assert _error_handling(0, reconfigurable, chosen) == taken


has_creators = pytest.mark.skipif(not hasattr(c10d, "_create_nccl2_process_group"), reason="before torch 2.15")


@has_creators
@pytest.mark.parametrize(("chosen", "creator"), [(None, "_create_nccl2_process_group"), ("0", None)])
def test_nccl_is_what_torch_makes_of_the_name(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, creator: str | None
) -> None:
    monkeypatch.delitem(dist.Backend._plugins, "NCCL", raising=False)
    if chosen is None:
        monkeypatch.delenv("TORCH_DIST_USE_NCCL2", raising=False)
    else:
        monkeypatch.setenv("TORCH_DIST_USE_NCCL2", chosen)
    found = backend._creator_of_nccl()
    assert found is (creator and getattr(c10d, creator))
    dist.Backend._plugins.pop("NCCL")


@has_creators
def test_torchs_creator_gets_the_groups_options_and_device(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, Any]] = []
    plugin = dist.Backend._BackendPlugin(lambda *asked: made.append(asked), extended_api=True)
    monkeypatch.setitem(dist.Backend._plugins, "NCCL", plugin)
    options = dist.ProcessGroupNCCL.Options()
    options.config.max_ctas = 3
    make = backend._nccl_maker(options, outlives_errors=False)
    make(_group(1, 4), timedelta(seconds=7), 5, dist.HashStore(), False, 2)
    ((asked, given),) = made
    assert (asked.group_rank, asked.group_size, asked.group_id) == (1, 4, "a group")
    assert asked.timeout == given._timeout == timedelta(seconds=7)
    assert asked.process_group.bound_device_id == torch.device("cuda", 2)
    assert (given.config.max_ctas, given.lazy_init, options.lazy_init) == (3, True, False)
    with mock.patch.object(dist, "ProcessGroupNCCL") as older:
        make(_group(1, 4), timedelta(seconds=7), 5, dist.HashStore(), True, 2)
    assert older.called
    assert len(made) == 1


@has_creators
def test_nccl_that_is_made_for_no_device_gets_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    plugin = dist.Backend._BackendPlugin(lambda request, _: asked.append(request), extended_api=True)
    monkeypatch.setitem(dist.Backend._plugins, "NCCL", plugin)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    backend._nccl_maker(None, outlives_errors=False)(_group(1, 4), timedelta(seconds=7), 5, dist.HashStore(), False, -1)
    assert asked[0].process_group.bound_device_id == torch.device("cuda", 3)


@pytest.mark.skipif(hasattr(c10d, "_create_nccl2_process_group"), reason="from torch 2.15 on it is another one")
def test_before_torch_2_15_nccl_is_the_older_one() -> None:
    make = backend._nccl_maker(None, outlives_errors=False)
    assert make(_group(0, 2), timedelta(seconds=7), 5, dist.HashStore(), True, 0) is None
