"""The three runs on a machine with a GPU: their stages, in order. Each is made for ten minutes with the build.

A: does it work at all. B: does it hold. C: how fast is it, on fairring alone.

On emulated devices, where cores that have other work too compute in place of a GPU, all limits are five times as long,
and what C measures is cut down to what shows that its programs run.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from gpu_runs.stage import Stage

RUNS = ("A", "B", "C")
BUILD = Stage("build", 300, [".ci/gpu-build"])
# A function of a test that has not come back after that ends with its ranks' stacks, before pytest's own limit.
PATIENCE_SECONDS = 45
_TEST_SECONDS = 75
_QUEUES = ("1", "8", "32")


def stages(run: str, built: Path, python: str, results: Path) -> list[Stage]:
    """built: CMake's folder; python: has the package; results: where a benchmark leaves its rows."""
    chosen = {"A": _works, "B": _holds, "C": _is_fast}[run](built, python, results)
    return [replace(stage, seconds=stage.seconds * _times()) for stage in chosen]


def _are_emulated() -> bool:
    return "EMULATED_CUDA_LIBRARIES" in os.environ


def _times() -> int:
    return 5 if _are_emulated() else 1


def _pytest(python: str, name: str, seconds: int, file: str, chosen: str = "") -> Stage:
    command = [python, "-m", "pytest", "-m", "gpu", "-ra", f"--timeout={_TEST_SECONDS * _times()}", "--maxfail=3"]
    command += [f"tests/gpu/test_gpu_{file}.py", *(["-k", chosen] if chosen else [])]
    return Stage(name, seconds, command, "pytest", {"RANKS_TIMEOUT_SECONDS": str(PATIENCE_SECONDS * _times())})


def _gtest(built: Path, name: str, seconds: int, chosen: str, *before: str) -> Stage:
    tests = str(built / "tests/cpp/fairring_cuda_tests")
    return Stage(name, seconds, [*before, tests, "--gtest_brief=1", f"--gtest_filter={chosen}"], "gtest")


def _works(built: Path, python: str, _: Path) -> list[Stage]:
    def test(name: str, seconds: int, file: str, chosen: str) -> Stage:
        return _pytest(python, name, seconds, file, chosen)

    return [
        Stage("what the driver does with gates", 180, [str(built / "benchmarks/cpp/fairring_cuda_probe")]),
        _gtest(built, "C++ tests of streams", 60, "CudaStreams*:CudaAccelerator*"),
        _gtest(built, "C++ tests of kernels", 100, "-CudaStreams*:CudaAccelerator*"),
        test("sums on 2x1", 100, "sums", "2x1 and (float32 or bfloat16 or buckets or many)"),
        test("streams on 2x1", 80, "streams", "callers_stream or dropped or futures or another_thread"),
        test("reduce-scatters and all-gathers on 2x1", 60, "blocks", "2x1 and (float32 or dtype0 or share)"),
        test("NCCL inside a machine", 120, "sums", "2x2 and ((SUM and float32) or averages or many)"),
    ]


def _holds(_: Path, python: str, __: Path) -> list[Stage]:
    def test(name: str, seconds: int, file: str, chosen: str = "") -> Stage:
        return _pytest(python, name, seconds, file, chosen)

    return [
        test("streams", 150, "streams"),
        test("failures", 140, "failures"),
        test("members that change", 90, "members", "pinned"),
        test("reduce-scatters and all-gathers", 110, "blocks", "not 2x1 and not 2x4"),
        test("training", 160, "training", "not 2x4"),
        test("who takes a call", 60, "auto"),
        test("groups and threads", 60, "groups"),
        test("rails by NCCL", 60, "nccl_rails", "2x1 and bits"),
        test("calls of NCCL", 70, "delegated"),
        test("sparse tensors", 70, "sparse", "on"),
    ]


def _is_fast(built: Path, python: str, results: Path) -> list[Stage]:
    bench = [python, "benchmarks/gpu.py", "--backends", "fairring", "--layouts", "2x1", "--json", str(results)]
    streams = "CudaStreams*:CudaAccelerator*"
    kernels = "*TakesAnyAlignment*:*MayWriteOver*:CudaReductions.*:*CudaRows*"
    queues = [
        _gtest(built, f"streams, {n} hardware queues", 40, streams, "env", f"CUDA_DEVICE_MAX_CONNECTIONS={n}")
        for n in _QUEUES
    ]
    checks = [
        _gtest(built, f"kernels under compute-sanitizer: {tool}", 120, kernels, *_sanitizer(tool))
        for tool in ("memcheck", "racecheck", "initcheck")
    ]
    shortened = ["once"] if _are_emulated() else []
    return [
        Stage("kernels", 90, [str(built / "benchmarks/cpp/fairring_cuda_bench"), *shortened]),
        Stage("calls and steps on fairring", 150, bench, environment={"PYTHONPATH": "tests"}),
        *queues,
        *checks,
    ]


def _sanitizer(tool: str) -> list[str]:
    """A stage with it fails where it is not installed."""
    toolkit = Path("/usr/local/cuda/bin/compute-sanitizer")
    return [str(toolkit) if toolkit.exists() else toolkit.name, "--tool", tool, "--error-exitcode", "1"]


def everything(python: str) -> Stage:
    return Stage("every test", 5400, [python, "-m", "pytest", "-m", "gpu", "-ra", "tests/gpu"], "pytest")
