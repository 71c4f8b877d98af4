"""The variables with which `fairring lab --emulated-gpus` starts ranks, and its errors if something is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab_programs import run_command_line

from fairring.lab import LabError, emulated_gpus


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a checkout has the libraries for torch 2.15."""
    monkeypatch.setattr(emulated_gpus, "CHECKOUT", tmp_path)
    folder = tmp_path / "build" / "torch-2.15" / "cmake" / "tests" / "emulated_cuda"
    folder.mkdir(parents=True)
    for name in (*emulated_gpus.PRELOADED, emulated_gpus.OPERATORS):
        (folder / name).touch()
    return folder


def test_the_libraries_of_this_torch_come_before_what_is_preloaded_already(folder: Path) -> None:
    variables = emulated_gpus.variables(2, {"LD_PRELOAD": "libown.so"}, "2.15.0+cu132")
    assert variables["EMULATED_CUDA_DEVICES"] == "2"
    assert variables["EMULATED_CUDA_LIBRARIES"] == str(folder)
    assert variables["LD_PRELOAD"].split(":") == [*(str(folder / n) for n in emulated_gpus.PRELOADED), "libown.so"]


@pytest.mark.parametrize(
    ("makefile", "advice"), [(True, r"run `make emulated-cuda` in"), (False, "clone them and run")]
)
def test_what_to_build_is_said_where_it_is_missing(folder: Path, makefile: bool, advice: str) -> None:
    if makefile:
        (emulated_gpus.CHECKOUT / "Makefile").touch()
    with pytest.raises(LabError, match=rf"torch-2\.14.* has no libcudart\.so\.13: {advice}"):
        emulated_gpus.variables(2, {}, "2.14.1")
    (folder / emulated_gpus.OPERATORS).unlink()
    with pytest.raises(LabError, match=rf"has no libemulated_torch\.so: {advice}"):
        emulated_gpus.variables(2, {}, "2.15.0")


@pytest.mark.parametrize("number", [-1, 65])
def test_other_numbers_of_devices_are_errors(number: int) -> None:
    with pytest.raises(LabError, match=rf"--emulated-gpus {number} is no number of devices; give 1 to 64"):
        emulated_gpus.variables(number, {}, "2.15.0")


def test_the_command_line_says_so_before_anything_is_started() -> None:
    run = run_command_line("--emulated-gpus", "-1", "--", "true")
    assert run.returncode == 2
    assert "--emulated-gpus -1 is no number" in run.stderr
