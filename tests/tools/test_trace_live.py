"""Traces that are asked for while their process ends."""

from __future__ import annotations

import subprocess
import sys

from fairring.trace.live import ask

TIMEOUT_SECONDS = 120

# Writes its traces slowly: until its main thread has ended. Handlers at exit run in the opposite order.
ENDING = """
import atexit, sys, threading
from pathlib import Path
from fairring import _core
from fairring.trace.live import serve

begun, written = threading.Event(), threading.Event()

def write_traces(calls, where):
    begun.set()
    threading.main_thread().join()
    written.set()

_core.write_traces = write_traces
atexit.register(lambda: print("written" if written.is_set() else "Python ends first"))
serve(Path(sys.argv[1]))
print("ready", flush=True)
begun.wait()
"""


def test_a_process_ends_when_it_has_answered(tmp_path) -> None:
    command = [sys.executable, "-c", ENDING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert ask(tmp_path) == (1, [])
        assert process.communicate(timeout=TIMEOUT_SECONDS)[0] == "written\n"
    assert process.returncode == 0
