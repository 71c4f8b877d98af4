"""Programs to run in a lab, and ways to observe one from outside: shared by the tests of the emulated cluster."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fairring import lab

REPOSITORY = Path(__file__).parent.parent
PROGRAMS = Path(__file__).parent / "programs"
TIMEOUT_SECONDS = 60
RUN_SECONDS = 200  # for programs that import torch
SMALL_SLICES = {"FAIRRING_SLICE_SIZE": "64KiB", "FAIRRING_TOTAL_MEMORY": "1MiB"}
# The programs that the ranks run need nothing but the standard library.
PYTHON = [sys.executable, "-I", "-S", "-c"]

REPORT = "import json, os; print(json.dumps({'net': os.readlink('/proc/self/ns/net'), **os.environ}))"

# Signals are waited for and not handled: a handler that prints could come in the middle of a print.
ON_TERM = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("ready", flush=True)
signal.sigwait({signal.SIGTERM})
sys.exit(7)
"""
ON_INT = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
print("ready", flush=True)
while signal.sigwait({signal.SIGINT}):
    print("once", flush=True)
"""


def program(name: str, *arguments: str) -> list[str]:
    """The command of one of tests/programs."""
    return [sys.executable, str(PROGRAMS / f"{name}.py"), *arguments]


def namespaces_work() -> bool:
    try:
        with lab.Lab(["true"], [1], "none", network="namespaces"):
            return True
    except lab.LabError:
        return False


needs_namespaces = pytest.mark.skipif(not namespaces_work(), reason="no network namespaces with veth and tbf here")


def python(program: str, *arguments: str) -> list[str]:
    return [*PYTHON, program, *arguments]


def run(
    command: Sequence[str],
    machines: Sequence[int],
    env: Mapping[str, str] | None = None,
    seconds: float = RUN_SECONDS,
    **settings: Any,
) -> list[str]:
    """The output of each rank, once all have ended well."""
    with lab.Lab(command, machines, "none", env=env or {}, **settings) as running:
        result = running.wait(seconds)
    assert result.exit_codes == [0] * sum(machines), result.output
    return result.stdout


def measured(
    command: Sequence[str], machines: Sequence[int], file: Path, seconds: float = RUN_SECONDS
) -> tuple[list[str], dict[str, Any]]:
    """The output of each rank of a benchmark, and what it has written into the file."""
    said = run([*command, "--json", str(file)], machines, seconds=seconds, network="none")
    return said, json.loads(file.read_text())


def errors(running: lab.Lab, ranks: Sequence[int]) -> list[str]:
    """The output of each of these ranks, which run endless.py, once all have failed. Kills them."""
    for rank in ranks:
        running.wait_for_output(rank, "after", 2 * TIMEOUT_SECONDS)
    for rank in ranks:
        running.signal(signal.SIGKILL, rank)
    stdout = running.wait(TIMEOUT_SECONDS).stdout
    return [stdout[rank] for rank in ranks]


def reports(result: lab.LabResult) -> list[dict[str, str]]:
    return [json.loads(text) for text in result.stdout]


def command_line(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fairring", "lab", *arguments]


@contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A lab in a process of its own, with its output in pipes."""
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run_command_line(*arguments: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [*before, *command_line(*arguments)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)


def read_lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def await_end(pidfd: int) -> None:
    """Waits until the process that the descriptor stands for has ended."""
    assert select.select([pidfd], [], [], TIMEOUT_SECONDS)[0], "the process still runs"
    os.close(pidfd)


def network_namespace(process: int | str = "self") -> str:
    """Names the namespace, the same for two processes that share it."""
    return str(Path(f"/proc/{process}/ns/net").readlink())


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def child_of(pid: int) -> int:
    (child,) = children_of(pid)
    return int(child)


def namespaces_in_use() -> set[str]:
    found = set()
    for process in Path("/proc").iterdir():
        # Others come and go meanwhile, and some are not ours to inspect.
        with suppress(OSError):
            if process.name.isdigit():
                found.add(network_namespace(process.name))
    return found
