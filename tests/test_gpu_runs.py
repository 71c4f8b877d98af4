"""The runs on a machine with a GPU, without one: what a stage is reported to have come to, and why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_runs.runs import RUNS, stages
from gpu_runs.stage import EXCUSED, Stage, carry_out

ROOT = Path(__file__).parent.parent


def _program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_stage_keeps_what_it_printed(tmp_path: Path) -> None:
    result = carry_out(Stage("a probe", 60, _program("print('9 us')")), tmp_path)
    assert (result.outcome, result.lines, result.reasons) == ("passed", ["9 us"], [])
    assert Path(result.log).read_text() == "9 us\n"


def test_a_stage_that_fails_says_how(tmp_path: Path) -> None:
    result = carry_out(Stage("a probe", 60, _program("raise SystemExit(7)")), tmp_path)
    assert (result.outcome, result.reasons) == ("failed", ["exit code 7"])
    assert carry_out(Stage("no probe", 60, ["/nowhere/probe"]), tmp_path).outcome == "failed"


HANGS = """
import subprocess, sys, threading
subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
threading.Thread(target=threading.Event().wait).start()
print("begun", flush=True)
"""


def test_a_stage_that_does_not_end_leaves_the_stacks_of_all_its_processes(tmp_path: Path) -> None:
    result = carry_out(Stage("a hang", 4, _program(HANGS)), tmp_path)
    assert (result.outcome, result.reasons) == ("timed out", ["not over after 4 s"])
    said = Path(result.log).read_text()
    processes = [int(line.split()[2].rstrip(":")) for line in said.splitlines() if line.startswith("==> process")]
    assert len(processes) == 2
    assert said.count("waits in") == 3  # threads
    # They have ended: else the stage's output would be open still, and read.


TESTS = f"""
import pytest
def test_passes(): pass
@pytest.mark.skip(reason={EXCUSED[0]!r})
def test_of_others(): pass
@pytest.mark.skip(reason="sm_90")
def test_of_nobody(): pass
def test_fails(): raise AssertionError
"""


def test_a_skipped_test_has_not_passed(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(TESTS)
    pytest_ = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(file)]
    result = carry_out(Stage("all", 60, pytest_, "pytest"), tmp_path)
    assert result.counts == {"passed": 1, "failed": 1, "skipped": 2}
    assert result.reasons == ["exit code 1", "test_of_nobody was skipped: sm_90", "test_fails failed"]
    skipped = carry_out(Stage("one", 60, [*pytest_, "-k", "nobody"], "pytest"), tmp_path)
    assert (skipped.outcome, skipped.reasons) == ("failed", ["test_of_nobody was skipped: sm_90"])
    assert carry_out(Stage("two", 60, [*pytest_, "-k", "passes or others"], "pytest"), tmp_path).outcome == "passed"


GTEST = """
import json, sys
tests = [{"name": "Runs", "status": "RUN", "result": "COMPLETED"}]
tests += [{"name": "Stops", "status": "RUN", "result": "SKIPPED"}]
count, option = sys.argv[1:]
with open(option.partition("json:")[2], "w") as file:
    json.dump({"testsuites": [{"name": "Cuda", "testsuite": tests[: int(count)]}]}, file)
"""


@pytest.mark.parametrize(("tests", "reasons"), [(0, ["no test was run"]), (1, []), (2, ["Cuda.Stops was skipped"])])
def test_the_same_holds_for_tests_in_cpp(tests: int, reasons: list[str], tmp_path: Path) -> None:
    result = carry_out(Stage("C++", 60, [*_program(GTEST), str(tests)], "gtest"), tmp_path)
    assert result.reasons == reasons


@pytest.mark.parametrize("run", RUNS)
def test_a_run_names_files_that_there_are(run: str) -> None:
    chosen = stages(run, Path("built"), sys.executable, Path("rows.json"))
    assert len({stage.name for stage in chosen}) == len(chosen)
    for stage in chosen:
        for word in stage.command:
            assert not word.startswith("tests/") or (ROOT / word).exists(), word


def test_limits_are_longer_on_emulated_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EMULATED_CUDA_LIBRARIES", raising=False)
    on_a_gpu = stages("B", Path("built"), sys.executable, Path("rows.json"))
    monkeypatch.setenv("EMULATED_CUDA_LIBRARIES", "libraries")
    emulated = stages("B", Path("built"), sys.executable, Path("rows.json"))
    for short, long in zip(on_a_gpu, emulated, strict=True):
        assert long.seconds == 5 * short.seconds
        assert "--timeout=75" in short.command
        assert "--timeout=375" in long.command
        assert (short.environment["RANKS_TIMEOUT_SECONDS"], long.environment["RANKS_TIMEOUT_SECONDS"]) == ("45", "225")


def test_without_a_gpu_a_run_fails_and_says_why() -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "GPU_PYTHON": sys.executable}
    run = subprocess.run([ROOT / "tests/gpu/run", "A"], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "sees no CUDA device" in run.stdout
    (build,) = json.loads((ROOT / "build/gpu/results-A.json").read_text())["stages"]
    assert (build["stage"], build["outcome"], build["reasons"]) == ("build", "failed", ["exit code 3"])
