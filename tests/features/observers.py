"""A group as PyTorch's own observers see it, and as it describes itself."""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from features.rank import Rank

c10d: Any = torch._C._distributed_c10d


def profiler_titles(rank: Rank) -> None:
    """The profiler shows calls under the backend's name"""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        dist.all_reduce(torch.ones(3))
        dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()
        dist.all_gather([torch.ones(2) for _ in rank.everyone], torch.ones(2))
        dist.barrier()
    names = {event.name for event in profiler.events() or []}
    assert f"{rank.backend}:all_reduce" in names
    assert f"{rank.backend}:all_gather" in names


def flight_recorder(rank: Rank) -> None:
    """The flight recorder's dump has the group's calls and that they ended"""
    dist.all_reduce(torch.ones(17))
    dist.barrier()
    trace = json.loads(c10d._dump_fr_trace_json(backend=rank.backend))
    entries = [entry for entry in trace["entries"] if entry["input_sizes"] == [[17]]]
    assert entries
    assert entries[-1]["state"] == "completed"
    assert "all_reduce" in entries[-1]["profiling_name"]


def hooks_around_calls(rank: Rank) -> None:
    """ProcessGroup's hooks before and after calls"""
    group: Any = dist.new_group()
    seen: list[str] = []
    group.register_pre_hook(1, lambda arguments: seen.append(f"before {arguments.name}"))
    group.register_post_hook(2, lambda arguments: seen.append(f"after {arguments.name}"))
    dist.all_reduce(torch.ones(rank.size), group=group)
    group.unregister_pre_hook(1)
    group.unregister_post_hook(2)
    dist.all_reduce(torch.ones(rank.size), group=group)
    assert len(seen) == 2, seen


def names(rank: Rank) -> None:
    """get_backend, get_backend_config, is_initialized, sizes and names"""
    group: Any = dist.group.WORLD
    assert dist.is_initialized()
    assert dist.get_backend() == rank.backend
    assert rank.backend in dist.get_backend_config()
    assert dist.get_world_size() == group.size() == rank.size
    assert dist.get_rank() == group.rank() == rank.number
    assert group._get_backend(torch.device("cpu")).name() == rank.backend
    assert torch.device("cpu") in group._device_types
    assert isinstance(group.group_name, str)


def errors_of_the_group(rank: Rank) -> None:
    """Backend.get_error of a healthy group"""
    group: Any = dist.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    dist.all_reduce(torch.ones(rank.size))
    assert backend.get_error() == c10d.ErrorType.SUCCESS


def options_of_the_group(rank: Rank) -> None:
    """Backend.options: timeout and name"""
    group: Any = dist.group.WORLD
    options = group._get_backend(torch.device("cpu")).options
    assert options._timeout.total_seconds() == 20
    assert rank.backend in options.backend
