"""torchft's own tests with a Fairring group in Gloo's place, and training that goes on when a replica is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from libraries import torchft_suite

pytest.importorskip("torchft", reason="torchft is not installed here: make test-libraries")

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_torchft.py"
TIMEOUT_SECONDS = 280  # a safety net


@pytest.mark.slow
@pytest.mark.parametrize("file", torchft_suite.FILES)
def test_torchfts_own_tests_pass_with_a_group_of_ours(file: str) -> None:
    if not torchft_suite.has(file):
        pytest.skip(f"this torchft has no {file}")
    result = torchft_suite.run("fairring", file)
    assert result.failed == {}
    assert result.passed


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["fairring", "gloo"])
def test_training_goes_on_as_a_replica_is_killed_and_one_joins(backend: str) -> None:
    command = [sys.executable, str(EXAMPLE), "--backend", backend, "--kills", "1", "--steps", "10"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    for line in ("2 did their next step", "one has joined; 3 train", "equal on all 3 replicas: True"):
        assert line in ended.stdout
