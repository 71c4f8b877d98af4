"""Traces of a live job: each process with FAIRRING_TRACE listens in that directory and writes its ranks' when asked.

It listens on a unix socket, so the directory's permissions say which users may ask; only a number of calls is read from
it. A Python thread answers; it asks the C++ module and touches nothing else, so it works while the process's main
thread is stuck in a call.
"""

from __future__ import annotations

import atexit
import os
import select
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from fairring.trace.program import where

_SUFFIX = ".socket"
_PATIENCE_SECONDS = 10.0
_LONGEST_ANSWER = 65_536
_REQUEST_BYTES = 8  # how many calls, the first byte first
_served: dict[Path, int] = {}  # the process that serves each directory: a forked child has no such thread


def serve(directory: Path) -> None:
    """Begins to answer in that directory, for all groups of this process. A second call does nothing."""
    if _served.get(directory) == os.getpid():
        return
    _served[directory] = os.getpid()
    path = directory / f"{socket.gethostname()}-{os.getpid()}{_SUFFIX}"
    listener = socket.socket(socket.AF_UNIX)
    with _Short(path) as short:
        Path(short).unlink(missing_ok=True)
        listener.bind(short)
        Path(short).chmod(0o600)
    listener.listen()
    stop, stopping = os.pipe2(os.O_CLOEXEC)
    thread = threading.Thread(target=_answer, args=(listener, stop), name="fairring-trace", daemon=True)
    thread.start()
    atexit.register(_end, path, os.getpid(), stopping, thread)


def ask(directory: Path, calls: int = sys.maxsize) -> tuple[int, list[str]]:
    """Asks every process of this machine that listens there to write the traces of its last calls, all at once.

    How many did, and what others said.
    """
    answered, refused = 0, []
    with ExitStack() as open_sockets:
        asked: dict[socket.socket, Path] = {}
        for path in sorted(directory.glob(f"*{_SUFFIX}")):
            asking = open_sockets.enter_context(socket.socket(socket.AF_UNIX))
            with suppress(OSError), _Short(path) as short:  # it has ended, or runs on another machine
                asking.connect(short)
                asking.sendall(calls.to_bytes(_REQUEST_BYTES, "big"))
                asked[asking] = path
        end = time.monotonic() + _PATIENCE_SECONDS
        for asking, path in asked.items():
            said = _heard(asking, end)
            if said == "written":
                answered += 1
            else:
                refused.append(f"{path.stem}: {said or 'it ended'}")
    return answered, refused


def nobody_answers(directory: Path) -> str:
    """Why no process has answered there, and where to look instead."""
    if not directory.is_dir():
        return f"{directory} is no directory; give the one that the job's FAIRRING_TRACE names"
    traces = len(list(directory.glob("*-rank*.json")))
    if traces:
        return (
            f"no process of this machine listens in {directory}: the job has ended, or runs on other machines. "
            f"`fairring trace explain {directory}` reads the {traces} traces that are there"
        )
    return f"no process of this machine listens in {directory}: does the job run here, with FAIRRING_TRACE={directory}?"


def _heard(asking: socket.socket, end: float) -> str:
    asking.settimeout(max(0.0, end - time.monotonic()))
    try:
        return asking.recv(_LONGEST_ANSWER).decode(errors="replace")
    except (TimeoutError, BlockingIOError):
        return f"no answer within {_PATIENCE_SECONDS:g} s: its process is stopped, or busy without Python's lock"
    except OSError:
        return ""


def _answer(listener: socket.socket, stop: int) -> None:
    """Until the writing end of `stop` is closed."""
    events = select.poll()
    events.register(listener, select.POLLIN)
    events.register(stop, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in events.poll()]
        if listener.fileno() in ready:
            _answer_one(listener)
        if stop in ready:
            return


def _answer_one(listener: socket.socket) -> None:
    from fairring import _core

    asking, _ = listener.accept()
    with asking, suppress(OSError):
        asking.settimeout(_PATIENCE_SECONDS)
        calls = int.from_bytes(asking.recv(_REQUEST_BYTES, socket.MSG_WAITALL), "big")
        try:
            _core.write_traces(calls, where())
            asking.sendall(b"written")
        except RuntimeError as error:
            asking.sendall(str(error).encode())


def _end(path: Path, process: int, stopping: int, thread: threading.Thread) -> None:
    """Before Python ends: it would end a thread that comes back from C++ afterwards, and C++ then ends the process."""
    if process == os.getpid():
        path.unlink(missing_ok=True)
        os.close(stopping)
        thread.join(_PATIENCE_SECONDS)


class _Short:
    """The path relative to its directory's descriptor: addresses of unix sockets have 107 bytes at most."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> str:
        self._directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._directory}/{self._path.name}"

    def __exit__(self, *error: object) -> None:
        os.close(self._directory)
