"""`fairring lab --emulated-gpus`: a script that knows nothing of it, on machines and devices that do not exist."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import emulated_devices
import pytest
import torch
from lab_programs import TIMEOUT_SECONDS, program

from fairring import lab

pytestmark = [pytest.mark.gpu, emulated_devices.only_there]


def test_a_script_trains_on_two_machines_of_two_devices() -> None:
    environment = {"FAIRRING_CUDA": "on", "TORCH_CPP_LOG_LEVEL": "INFO"}
    command = program("ddp_on_cuda")
    with lab.Lab(command, [2, 2], rate="none", env=environment, emulated_gpus=2) as running:
        result = running.wait(4 * TIMEOUT_SECONDS)
    assert result.exit_codes == [0] * 4, result.output
    said = [text.split() for text in result.stdout]
    assert [words[0] for words in said] == ["cuda:0", "cuda:1"] * 2
    assert {words[1] for words in said} == {"2"}
    assert len({words[2] for words in said}) == 1, "the ranks' parameters differ"
    assert "fairring's: NCCL inside machines, tcp between them" in result.stderr[0]


def test_the_benchmark_measures_calls_on_devices(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    options = ["--device", "cuda", "--sizes", "1MiB", "--iterations", "1", "--warmup", "1", "--json", str(file)]
    command = [sys.executable, "-m", "fairring", "bench", "all-reduce", *options]
    with lab.Lab(command, [1, 1], rate="none", env={"FAIRRING_CUDA": "on"}, emulated_gpus=1) as running:
        result = running.wait(4 * TIMEOUT_SECONDS)
    assert result.exit_codes == [0, 0], result.output
    nccl, ours, fake = json.loads(file.read_text())["rows"]
    assert [row["backend"] for row in (nccl, ours, fake)] == ["nccl", "fairring", "fake"]
    assert (nccl["wrong"], ours["wrong"], nccl["vs_stock"]) == (0, 0, 1.0)
    assert ours["levels"]["rail"]["bytes"] == ours["least_bytes"]["rail"] == 1 << 20
    assert all(0 < row["host"] <= row["median"] for row in (nccl, ours))


def _saved_after_a_death(folder: Path, on_error: dict[str, str]) -> tuple[lab.LabResult, Path]:
    path = folder / "parameter.pt"
    environment = {"FAIRRING_CUDA": "on", "FAIRRING_SLICE_SIZE": "1MiB", "FAIRRING_TOTAL_MEMORY": "4MiB", **on_error}
    with lab.Lab(program("saves_on_cuda", str(path)), [1, 1], rate="none", env=environment, emulated_gpus=2) as running:
        result = running.wait(4 * TIMEOUT_SECONDS)
    assert result.exit_codes[1] == 7, result.output
    return result, path


def test_a_process_ends_before_it_saves_what_a_broken_call_gave_it(tmp_path: Path) -> None:
    result, path = _saved_after_a_death(tmp_path, {})
    assert result.exit_codes[0] == 1, result.output
    assert "rank 1" in result.stderr[0]
    assert "FAIRRING_ON_ERROR=auto" in result.stderr[0]
    assert not path.exists()


def test_a_process_that_goes_on_saves_no_garbage(tmp_path: Path) -> None:
    _, path = _saved_after_a_death(tmp_path, {"FAIRRING_ON_ERROR": "raise"})
    assert torch.load(path).isnan().all()
