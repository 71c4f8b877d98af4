"""FAIRRING_REPLACE=gloo: programs that ask for Gloo, and know nothing of Fairring, get Fairring's groups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, backend_of
from torch.distributed import distributed_c10d as c10d

from fairring import replace
from fairring.check import findings, imported
from fairring.config import Config, ConfigError

pytestmark = pytest.mark.skipif(not hasattr(c10d, "_create_gloo_process_group"), reason="of torch 2.15")
CPU = torch.device("cpu")

# Behind the look of fairring check.
PROGRAM = (
    Path(imported.__file__).read_text()
    + """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
cpu = torch.device("cpu")
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
groups = {
    "default": dist.group.WORLD,
    "by device": dist.new_group(backend="cpu:gloo"),
    "by name": dist.new_group(backend="GLOO", pg_options=dist.ProcessGroupGloo._Options()),
    "split": dist.split_group(split_ranks=[[0]]),
    "mesh": init_device_mesh("cpu", (1,)).get_group(),
}
for group in groups.values():
    dist.monitored_barrier(group)
seen = {name: [dist.get_backend(group), group._get_backend(cpu).name()] for name, group in groups.items()}
print(json.dumps([seen, dist.is_gloo_available(), sorted(name for name in sys.modules if "fairring" in name)]))
"""
)


def run(**variables: str) -> tuple[bool, dict[str, list[str]], bool, list[str]]:
    """The word of fairring check, and per group: the backend's name to the program, and of what serves it."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "torch"],
        env={**os.environ, **variables},
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    checked, programs = map(json.loads, done.stdout.splitlines()[-2:])
    seen, gloo, modules = programs
    return checked["gloo_is_ours"], seen, gloo, modules


@pytest.mark.parametrize(("variables", "server"), [({"FAIRRING_REPLACE": "gloo"}, "fairring"), ({}, "gloo")])
def test_all_groups_of_a_program_that_never_imports_fairring(variables: dict[str, str], server: str) -> None:
    to_the_check, seen, gloo, modules = run(**variables)
    assert to_the_check == (server == "fairring")
    assert seen == {name: ["cpu:gloo" if name == "by device" else "gloo", server] for name in seen}
    assert gloo
    assert server == "fairring" or modules == ["fairring_autoload"]


@pytest.fixture(scope="module")
def three() -> Iterator[Ranks]:
    ranks = Ranks(3, {"FAIRRING_REPLACE": "gloo"})
    ranks.run(_install)
    ranks.init("gloo", timeout_seconds=60)
    yield ranks
    ranks.close()


def _install(_rank: int) -> None:
    replace.install()
    replace.install()  # again: does nothing
    assert replace.is_installed()


def _sum(rank: int) -> tuple[str, list[float]]:
    tensor = torch.full((5,), float(rank))
    dist.all_reduce(tensor)
    return backend_of().name(), tensor.tolist()


def test_ranks_sum_by_fairring(three: Ranks) -> None:
    assert three.run(_sum) == [("fairring", [3.0] * 5)] * 3


def _titles_in_the_profiler(_rank: int) -> list[str]:
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(5))
    return [event.name for event in profile.events() if event.name.endswith(":all_reduce")]


def test_the_profiler_shows_the_titles_that_programs_look_for(three: Ranks) -> None:
    assert three.run(_titles_in_the_profiler) == [["gloo:all_reduce"]] * 3


def _backend_in_ddps_log(_rank: int) -> tuple[str, bool]:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    log = model._get_ddp_logging_data()
    return log["backend_name"], "gloo_num_threads" in log


def test_ddps_log_reads_no_memory_of_a_gloo_that_is_not_there(three: Ranks) -> None:
    assert three.run(_backend_in_ddps_log) == [("custom", False)] * 3


def _devices_from_the_backend(_rank: int) -> int:
    backend = backend_of()
    gloo: Any = dist.ProcessGroupGloo  # torch's stub lacks its options
    options = gloo._Options()
    options._devices = [backend.create_device(interface="lo"), backend.create_default_device(lazy_init=True)]
    return len(options._devices)


def test_the_backend_makes_devices_for_a_gloo_of_the_programs_own(three: Ranks) -> None:
    assert three.run(_devices_from_the_backend) == [2] * 3


def _alone_in_a_barrier(rank: int) -> str:
    group: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=1))
    if rank:
        return ""
    with pytest.raises(RuntimeError) as barrier:
        dist.monitored_barrier(group, timeout=timedelta(milliseconds=200))
    return str(barrier.value)


def test_a_late_rank_has_the_texts_that_programs_look_for(three: Ranks) -> None:
    assert "failed to pass monitoredBarrier" in three.run(_alone_in_a_barrier)[0]


def test_a_value_that_is_no_such_backend_is_refused_when_a_group_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRRING_REPLACE", "nccl")
    with pytest.raises(ConfigError, match="FAIRRING_REPLACE='nccl' is no backend that Fairring can stand in for"):
        replace._create(None, None)


def test_a_torch_that_asks_for_no_registered_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRRING_REPLACE", "gloo")
    monkeypatch.delattr(c10d, "_create_gloo_process_group")
    with pytest.raises(ImportError, match=r"FAIRRING_REPLACE=gloo needs torch 2\.15, and this is torch"):
        replace.install()
    assert not replace.is_installed()


@pytest.mark.parametrize(("is_ours", "level"), [(True, findings.PASS), (False, findings.FAIL)])
def test_the_check_tells_who_makes_the_groups(is_ours: bool, level: str) -> None:
    report = {"torch": {"error": "", "gloo_is_ours": is_ours}}
    assert [found.level for found in findings._gloo(report, Config(replace="gloo"))] == [level]
    assert not list(findings._gloo(report, Config()))
