"""Each program gives the same losses on fairring as on gloo."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 280  # a safety net; a program takes a quarter of a minute
VARIABLES = {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def losses(program: str, *arguments: str, restarts: int = 0) -> list[float]:
    """The losses of two ranks under torchrun, each on a machine of its own. Only warnings may follow that line."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [f"--max-restarts={restarts}", str(HERE / "own_machine.py"), str(HERE / program), *arguments]
    done = subprocess.run(
        command, env={**os.environ, **VARIABLES}, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("losses "))
    found: list[float] = json.loads(line.removeprefix("losses "))
    assert found
    return found


@pytest.mark.parametrize("library", ["lightning", "accelerate", "transformers"])
def test_a_library_trains_alike(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed here: make test-libraries")
    program = f"{library}_training.py"
    assert losses(program, "fairring") == pytest.approx(losses(program, "gloo"), rel=1e-5)


@pytest.mark.slow
def test_torchrun_restarts_the_workers_of_a_rank_that_died() -> None:
    died = losses("restarted_training.py", "fairring", "dies", restarts=1)
    assert died == pytest.approx(losses("restarted_training.py", "gloo", "lives"), rel=1e-5)
