"""How torch finds the backend, and when it is registered."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks, all_reduce_ones

import fairring
from fairring import _core
from fairring.config import ConfigError


def test_the_backend_is_registered_for_cpu_and_cuda() -> None:
    fairring.register()  # again: does nothing
    assert dist.is_backend_available("fairring")
    assert dist.Backend("FAIRRING") == "fairring"
    assert dist.Backend.backend_capability["fairring"] == ["cpu", "cuda"]


@pytest.mark.smoke
def test_a_script_needs_one_line_and_torch_alone() -> None:
    needs_import = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 15)
    script = f"""
import torch, torch.distributed as dist
{"import fairring" if needs_import else ""}
dist.init_process_group("fairring", store=dist.HashStore(), rank=0, world_size=1)
tensor = torch.arange(4.)
dist.all_reduce(tensor)
assert dist.get_backend() == "fairring" and tensor.tolist() == [0, 1, 2, 3]
dist.destroy_process_group()
import sys
import fairring.traffic
tools = ("bench", "check", "cli", "extra", "forecast", "lab", "plan", "rivals", "table", "trace.files")
of_the_commands = {{"rich", "pyroute2", "matplotlib", *(f"fairring.{{tool}}" for tool in tools)}}
assert not of_the_commands & set(sys.modules), of_the_commands & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, cwd=tempfile.gettempdir())


def test_the_command_line_does_not_import_torch() -> None:
    script = "import sys; sys.argv[0] = 'fairring'; import fairring.cli; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize(
    "words", [["-mfairring"], ["-Im", "fairring"], ["-W", "ignore", "-m", "fairring"]], ids=" ".join
)
def test_the_command_line_starts_however_dash_m_is_written(words: list[str]) -> None:
    run = subprocess.run([sys.executable, *words, "--help"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert "usage: fairring" in run.stdout


def test_other_modules_run_by_dash_m_register_it() -> None:
    script = "import sys; sys.argv[0], sys.orig_argv[1:] = '-m', ['-mfairringlike']; import fairring"
    run = subprocess.run([sys.executable, "-c", f"{script}; assert 'torch' in sys.modules"], timeout=60)
    assert run.returncode == 0


def test_cuda_that_is_switched_on_needs_no_device_until_there_is_a_call_on_one() -> None:
    if _core.why_no_cuda():
        pytest.skip(_core.why_no_cuda())
    ranks = Ranks(2, {"FAIRRING_CUDA": "on"})
    ranks.init()
    assert ranks.run(all_reduce_ones, 100) == [200.0, 200.0]
    assert ranks.close() == [0, 0]


def _switched_on(_rank: int, reason: str) -> None:
    os.environ["FAIRRING_CUDA"] = "on"
    _core.why_no_cuda = lambda: reason
    with pytest.raises(ConfigError, match=rf"FAIRRING_CUDA=on can't be used: {reason}; .* or unset it on all ranks"):
        dist.init_process_group("fairring", store=dist.HashStore(), rank=0, world_size=2)


def test_cuda_that_is_switched_on_in_a_build_without_it_is_an_error(strangers: Ranks) -> None:
    strangers.run(_switched_on, "this build has none")
