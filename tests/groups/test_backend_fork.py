"""Forked children of a rank, as data loaders make them: they end by themselves, and hide no rank's death."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forked import VARIABLES
from ranks import TIMEOUT_SECONDS, Ranks, all_reduce_ones

FORKS = """
import os, sys, torch, torch.distributed as dist, fairring
from datetime import timedelta
store, rank, child = dist.FileStore(sys.argv[1], 2), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("fairring", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=30))
dist.all_reduce(torch.ones(3))
dist.barrier()
pid = os.fork()
if pid == 0:
    if child == "destroys":
        dist.destroy_process_group()
    if child == "calls":
        try:
            dist.all_reduce(torch.ones(3))
        except dist.DistBackendError as error:
            assert "forked" in str(error)
    sys.exit(7)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
tensor = torch.ones(3)
dist.all_reduce(tensor)
assert tensor.tolist() == [2, 2, 2]
sys.exit(code)
"""


@pytest.mark.slow
@pytest.mark.parametrize("child", ["does nothing", "destroys", "calls"])
def test_a_forked_child_exits_as_python_does(tmp_path: Path, child: str) -> None:
    variables = {**os.environ, **VARIABLES}
    commands = [[sys.executable, "-c", FORKS, str(tmp_path / "store"), str(rank), child] for rank in range(2)]
    parents = [subprocess.Popen(command, env=variables, start_new_session=True) for command in commands]
    try:
        assert [parent.wait(TIMEOUT_SECONDS) for parent in parents] == [7, 7]
    finally:
        for parent in parents:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)


def _leave_a_child(_rank: int) -> int:
    """A child that lives until the test ends it."""
    pid = os.fork()
    if pid == 0:
        os.closerange(0, 3)
        select.select([], [], [], 60)
        os._exit(0)
    return pid


def _die(_rank: int) -> None:
    os._exit(1)


def _seconds_until_an_error(_rank: int) -> tuple[float, str]:
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError) as caught:
        dist.all_reduce(torch.ones(1 << 20))
    return time.monotonic() - began, str(caught.value)


def test_a_living_child_does_not_hide_its_parents_death(strangers: Ranks) -> None:
    strangers.init()
    strangers.run(all_reduce_ones, 3)
    (child,) = strangers.run(_leave_a_child, on=[1])
    try:
        waiting = strangers.start(_seconds_until_an_error, on=[0])
        strangers.start(_die, on=[1])
        ((seconds, text),) = strangers.finish(waiting)
    finally:
        os.kill(child, 9)
    assert "rank 1" in text
    assert seconds < 10
