"""A stage of a run on a GPU: a command with a time limit, and what came of it.

A test that was skipped has not been passed, so the stage has failed, unless the test is of emulated devices or of a
later PyTorch. When the limit is over, the stacks of all of the stage's processes are written down before these end: by
a debugger where there is one. Needs nothing but Python's standard library.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

EXCUSED = ("of emulated devices", "of a later PyTorch")  # a test's reason to be skipped begins so
_DEBUGGER_SECONDS = 20  # for the stacks of all processes, each by a debugger of its own
_NAMED = ("_core", "libc[.]", "libcuda", "libcudart", "libnccl")  # libraries whose functions have names in stacks
_MOST_STACKS = 8  # processes whose stacks are written
_MOST_LINES = 40  # of a stage's output in its result

Counts = dict[str, int]


@dataclass(frozen=True)
class Stage:
    name: str
    seconds: int  # the limit
    command: list[str]
    tool: str = ""  # pytest or gtest: says what it counted; empty: the exit code says all
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """JSON of these is what a run leaves behind."""

    stage: str
    outcome: str  # passed, failed, or timed out
    reasons: list[str]  # why it has not passed: the exit code, names of tests
    seconds: float
    limit_seconds: int
    counts: Counts  # of tests: passed, failed, skipped
    lines: list[str]  # the last ones of its output; all of them are in the log
    log: str


def carry_out(stage: Stage, logs: Path) -> Result:
    """Shows the stage's output as it comes, and keeps it in a file of the stage's name."""
    log = logs / f"{re.sub('[^A-Za-z0-9]+', '-', stage.name)}.txt"
    counted = log.with_suffix(".counts")
    counted.unlink(missing_ok=True)
    option = {"pytest": [f"--junit-xml={counted}"], "gtest": [f"--gtest_output=json:{counted}"]}.get(stage.tool, [])
    print(f"==> {stage.name}", flush=True)
    began = time.monotonic()
    with log.open("w") as file:
        code = _run([*stage.command, *option], stage, file)
    seconds = time.monotonic() - began
    counts, reasons = {"pytest": _of_pytest, "gtest": _of_gtest}.get(stage.tool, _of_nothing)(counted)
    if code is None:
        reasons.insert(0, f"not over after {stage.seconds} s")
    elif code != 0:
        reasons.insert(0, f"exit code {code}")
    outcome = "timed out" if code is None else "failed" if reasons else "passed"
    print(f"==> {stage.name}: {outcome} after {seconds:.0f} s", *reasons, sep="\n      ", flush=True)
    lines = log.read_text(errors="replace").splitlines()[-_MOST_LINES:]
    return Result(stage.name, outcome, reasons, round(seconds, 1), stage.seconds, counts, lines, str(log))


def _run(command: list[str], stage: Stage, log: IO[str]) -> int | None:
    """The exit code; None if the limit was over before."""
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **stage.environment},
            start_new_session=True,  # so that all it has started can be found, and ended
        )
    except OSError as error:
        log.write(f"{error}\n")
        return 127
    show = threading.Thread(target=_show, args=(process.stdout, log))
    show.start()
    stacks = ""
    try:
        return process.wait(stage.seconds)
    except subprocess.TimeoutExpired:
        stacks = _stacks(process.pid)
        return None
    finally:
        _end(process)
        show.join()
        log.write(stacks)


def _show(output: IO[str] | None, log: IO[str]) -> None:
    for line in output or ():
        print(line, end="", flush=True)
        log.write(line)


def _end(process: subprocess.Popen[str]) -> None:
    """The stage's whole session."""
    for pid in [process.pid, *_session(process.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def _session(leader: int) -> list[int]:
    """The processes that the stage has started and that are still there."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == leader:
                found.append(int(entry.name))
        except ProcessLookupError:
            continue
    return sorted(found)


def _stacks(leader: int) -> str:
    debugger = next(filter(None, map(shutil.which, ("cuda-gdb", "gdb", "/usr/local/cuda/bin/cuda-gdb"))), None)
    processes = _session(leader)[:_MOST_STACKS]
    with ThreadPoolExecutor(_MOST_STACKS) as together:
        return "".join(together.map(lambda pid: _stacks_of(pid, debugger), processes))


def _stacks_of(pid: int, debugger: str | None) -> str:
    """By a debugger; besides, where the kernel has each thread wait."""
    text = f"\n==> process {pid}: {_read(Path(f'/proc/{pid}/cmdline'))}\n"
    for thread in sorted(Path(f"/proc/{pid}/task").glob("*")):
        text += f"thread {thread.name} ({_read(thread / 'comm')}) waits in {_read(thread / 'wchan')}\n"
    if debugger is None:
        return text + "there is neither cuda-gdb nor gdb here for its stacks\n"
    # The names in torch's libraries take it minutes to read.
    names = [word for library in _NAMED for word in ("-ex", f"sharedlibrary {library}")]
    command = [debugger, "-iex", "set auto-solib-add off", "-p", str(pid), "-batch", *names]
    command += ["-ex", "thread apply all bt 12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEBUGGER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return text + f"{debugger} was not through after {_DEBUGGER_SECONDS} s\n"
    return text + done.stdout


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return "?"


def _of_nothing(_: Path) -> tuple[Counts, list[str]]:
    return {}, []


def _of_pytest(report: Path) -> tuple[Counts, list[str]]:
    if not report.exists():
        return {}, ["no report of pytest's"]
    counts, reasons = {"passed": 0, "failed": 0, "skipped": 0}, []
    for case in ET.parse(report).iter("testcase"):
        bad = [each for tag in ("failure", "error") for each in case.findall(tag)]
        skipped = case.find("skipped")
        counts["failed" if bad else "passed" if skipped is None else "skipped"] += 1
        if bad:
            reasons.append(f"{case.get('name')} failed")
        elif skipped is not None and not str(skipped.get("message")).startswith(EXCUSED):
            reasons.append(f"{case.get('name')} was skipped: {skipped.get('message')}")
    return counts, reasons


def _of_gtest(report: Path) -> tuple[Counts, list[str]]:
    if not report.exists():
        return {}, ["no report of GoogleTest's"]
    counts, reasons = {"passed": 0, "failed": 0, "skipped": 0}, []
    for suite in json.loads(report.read_text())["testsuites"]:
        for case in suite["testsuite"]:
            if case["status"] == "NOTRUN":
                continue
            name = f"{suite['name']}.{case['name']}"
            kind = "failed" if case.get("failures") else "skipped" if case["result"] == "SKIPPED" else "passed"
            counts[kind] += 1
            if kind != "passed":
                reasons.append(f"{name} {'failed' if kind == 'failed' else 'was skipped'}")
    if not any(counts.values()):
        reasons.append("no test was run")
    return counts, reasons
