"""A group as PyTorch's own observers see it: the profiler, and from torch 2.15 on the flight recorder."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from every_call import CALLS, EveryCall
from ranks import Ranks, backend_of
from torch.profiler import ProfilerActivity, profile

from fairring import flight_recorder
from fairring.traffic import Moved, counting, traffic

kept: dict[str, Any] = {}  # what a rank keeps from one call to the next

c10d: Any = torch._C._distributed_c10d
needs_hooks = pytest.mark.skipif(not hasattr(c10d, "FlightRecorderHook"), reason="this torch has no hooks")


# Gloo's reduce-scatters are made of other calls.
SINGLE = [name for name in CALLS if not name.startswith("reduce_scatter")]
NOT_COMPLEX = ("all_reduce_max", "all_reduce_sparse", "all_gather_into_tensor_coalesced", "gather")
COMPARED = {
    "": SINGLE,
    "complex ": [name for name in SINGLE if name not in NOT_COMPLEX],
    "transposed ": ["all_reduce", "broadcast"],
}


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.t().contiguous().t()


def _events(_rank: int, backend: str) -> dict[str, list[tuple[str, object, bool]]]:
    """By call: the events' names behind the backend's, the shapes that they show, and whether they are asynchronous."""
    group = dist.new_group(backend=backend)
    calls = {"": EveryCall(group), "complex ": EveryCall(group, dtype=torch.complex64)}
    calls["transposed "] = EveryCall(group, written=_transposed, read=_transposed)
    events = {}
    for kind, name in [(kind, name) for kind, names in COMPARED.items() for name in names]:
        with torch.autograd.profiler.profile(record_shapes=True) as profiler:
            getattr(calls[kind], name)()
        events[kind + name] = [
            (event.name.removeprefix(backend), event.input_shapes, event.is_async)
            for event in profiler.function_events or []
            if event.name.startswith(backend)
        ]
    return events


def test_the_profiler_shows_the_events_of_gloo_under_our_name(pair: Ranks) -> None:
    ours, gloos = pair.run(_events, "fairring"), pair.run(_events, "gloo")
    assert len(ours[0]) == 40
    assert ours == gloos


def _profiled(_rank: int) -> list[tuple[str, object]]:
    """Calls that Gloo makes of others."""
    with torch.autograd.profiler.profile(record_shapes=True) as profiler:
        dist.reduce_scatter(torch.ones(2, 3), [torch.ones(2, 3), torch.ones(2, 3)])
        dist.reduce_scatter_tensor(torch.ones(2, 3), torch.ones(4, 3))
        dist.monitored_barrier()
    return [
        (event.name, event.input_shapes)
        for event in profiler.function_events or []
        if event.name.startswith("fairring:")
    ]


def test_a_call_that_gloo_makes_of_others_has_one_event(pair: Ranks) -> None:
    expected = [
        ("fairring:reduce_scatter", [[2, 3], [2, 3]]),
        ("fairring:reduce_scatter_tensor", [[4, 3]]),
        ("fairring:monitored_barrier", []),
    ]
    assert pair.run(_profiled) == [expected, expected]


def _counted(_rank: int) -> tuple[dict[str, Moved], set[str]]:
    tensors = [torch.ones(1024) for _ in range(10)]
    for tensor in tensors:
        dist.all_reduce(tensor)
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU]) as profiler, counting() as moved:
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()
        dist.barrier()
    return moved, {event.name for event in profiler.events() or [] if event.name.startswith("fairring:moved")}


def test_a_stretch_of_a_program_says_what_it_moved_and_so_does_the_trace() -> None:
    with Ranks(2, of_rank=[{"FAIRRING_MACHINE": name} for name in ("a", "b")]) as ranks:
        ranks.init()
        for moved, events in ranks.run(_counted):
            rail = moved["rail"]
            assert (rail.messages, rail.bytes) == (11, 10 * 4096 + 1), "ten all-reduces and a barrier"
            assert 1 <= rail.sends <= 11
            assert moved["machine"] == Moved()
            assert events == {f"fairring:moved machine: {moved['machine']}; rail: {rail}"}


def test_the_way_between_sites_is_called_so_where_no_rank_has_a_rail() -> None:
    with Ranks(2, of_rank=[{"FAIRRING_MACHINE": name, "FAIRRING_SITE": name} for name in ("a", "b")]) as ranks:
        ranks.init()
        assert [list(moved) for moved, _ in ranks.run(_counted)] == [["machine", "site"]] * 2


def _of_gloo(_rank: int) -> str:
    group: Any = dist.new_group(backend="gloo")
    try:
        traffic(group)
    except ValueError as error:
        return str(error)
    return ""


def test_only_our_groups_count(pair: Ranks) -> None:
    assert pair.run(_of_gloo) == ["only groups of the backend fairring count what they move"] * 2


def _call(_rank: int) -> None:
    dist.all_reduce(torch.ones(3))
    dist.all_gather([torch.ones(2), torch.ones(2)], torch.ones(2))
    dist.barrier()


def _begin(_rank: int) -> None:
    kept["works"] = [dist.all_reduce(torch.ones(3), async_op=True), dist.barrier(async_op=True)]


def _end(_rank: int) -> None:
    for work in kept.pop("works"):
        work.wait()


def _recorded(_rank: int) -> list[tuple[str, bool]]:
    trace = json.loads(c10d._dump_fr_trace_json(backend="fairring"))
    return [(entry["profiling_name"], entry["state"] == "completed") for entry in trace["entries"]]


@needs_hooks
def test_the_flight_recorder_sees_calls_and_their_ends() -> None:
    with Ranks(2, {"TORCH_FR_BUFFER_SIZE": "100"}) as ranks:  # torch then attaches it by itself
        ranks.init()
        ranks.run(_call)
        before = [("fairring:all_reduce", True), ("fairring:all_gather", True), ("fairring:barrier", True)]
        assert ranks.run(_recorded) == [before] * 2
        ranks.run(_begin, on=[0])
        assert ranks.run(_recorded, on=[0]) == [[*before, ("fairring:all_reduce", False), ("fairring:barrier", False)]]
        ranks.run(_begin, on=[1])
        ranks.run(_end)
        after = [*before, ("fairring:all_reduce", True), ("fairring:barrier", True)]
        assert ranks.run(_recorded) == [after] * 2


def _dump(rank: int, directory: Path) -> None:
    (directory / f"trace_{rank}").write_bytes(c10d._dump_fr_trace(backend="fairring"))


@needs_hooks
def test_pytorchs_own_analyzer_names_the_rank_that_has_not_made_a_call(tmp_path) -> None:
    with Ranks(2, {"TORCH_FR_BUFFER_SIZE": "100"}) as ranks:
        ranks.init()
        ranks.run(_call)
        ranks.run(_begin, on=[0])
        ranks.run(_dump, tmp_path)
    analyzer = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(tmp_path)]
    told = subprocess.run(analyzer, capture_output=True, text=True, timeout=250, check=True)
    assert "collective: fairring:all_reduce" in told.stdout + told.stderr
    assert "missing ranks: {1}" in told.stdout + told.stderr


def test_the_flight_recorder_is_waited_for_unless_somebody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(flight_recorder.VARIABLE, raising=False)
    flight_recorder.wait_until_it_has_written()
    assert os.environ[flight_recorder.VARIABLE] == "120000"
    monkeypatch.setenv(flight_recorder.VARIABLE, "5")
    flight_recorder.wait_until_it_has_written()
    assert os.environ[flight_recorder.VARIABLE] == "5"


_seen: list[str] = []


def _register_abort_hooks(_rank: int) -> None:
    backend = backend_of()
    assert backend.supports_abort_hooks
    backend.register_abort_hook(0, lambda: int("an exception"))
    backend.register_abort_hook(1, lambda: _seen.append("kept"))
    backend.register_abort_hook(2, lambda: _seen.append("taken back"))
    backend.unregister_abort_hook(2)


def _abort(_rank: int) -> list[str]:
    backend_of().abort()
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(3))
    dist.destroy_process_group()  # whose completion thread has then told all
    return _seen


@needs_hooks
def test_an_abort_tells_its_hooks_whatever_one_of_them_raises(strangers: Ranks) -> None:
    strangers.init()
    # Each on all ranks before any goes on: an abort ends calls where they are, and all ranks' groups.
    strangers.run(_call)
    strangers.run(_register_abort_hooks)
    for seen in strangers.run(_abort):
        assert seen == ["kept"]


def _fail(rank: int) -> tuple[bool, bool]:
    """Whether torch's compiler was imported by the failure, and whether something stands in its place still."""
    sys.modules.pop("torch._inductor", None)  # the process that ranks are forked from may have it
    vars(torch).pop("_inductor", None)
    _abort(rank)
    return "torch._inductor" in sys.modules, "_inductor" in vars(torch)


@needs_hooks
def test_a_failed_group_is_written_down_without_the_compiler(tmp_path: Path) -> None:
    with Ranks(2, {"TORCH_FR_BUFFER_SIZE": "100", "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")}) as ranks:
        ranks.init()
        ranks.run(_call)
        assert ranks.run(_fail) == [(False, False)] * 2
    for rank in range(2):
        entries = pickle.loads((tmp_path / f"trace_{rank}").read_bytes())["entries"]
        assert [entry["profiling_name"] for entry in entries][:1] == ["fairring:all_reduce"]
        assert any(frame["filename"] == __file__ and frame["name"] == "_call" for frame in entries[0]["frames"])


def test_what_stands_in_for_the_compiler_has_all_of_it_but_its_code_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = ModuleType("torch._inductor")
    compiler.codecache = compiler.config = "there"  # type: ignore[attr-defined]
    monkeypatch.delitem(vars(torch), "_inductor", raising=False)
    monkeypatch.delitem(sys.modules, "torch._inductor", raising=False)
    flight_recorder._stand_in()
    flight_recorder._stand_in()  # of two groups, the second of which fails while the first is written down
    monkeypatch.setitem(sys.modules, "torch._inductor", compiler)  # as by a thread that goes on meanwhile
    seen: object = torch._inductor.config
    assert seen == "there"
    assert not hasattr(torch._inductor, "codecache")
    flight_recorder._give_way()
    assert "_inductor" in vars(torch)
    flight_recorder._give_way()
    assert "_inductor" not in vars(torch)
