"""Traces of a live job: each process with FAIRRING_TRACE listens in that directory and writes its ranks' when asked.

A unix socket, so the directory's permissions say who may ask; all that is read from it is a number of calls. One
thread of Python's, which asks the C++ module and touches nothing else: it answers while the process's main thread is
stuck in a call.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

_SUFFIX = ".socket"
_PATIENCE_SECONDS = 30.0
_LONGEST_ANSWER = 65_536
_REQUEST_BYTES = 8  # how many calls, the first byte first
_served: dict[Path, int] = {}  # the process that serves each directory: a forked child has no such thread


def serve(directory: Path) -> None:
    """Begins to answer in that directory, for all of this process's groups. A second call does nothing."""
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
    atexit.register(_end, path, os.getpid())
    threading.Thread(target=_answer, args=(listener,), name="fairring-trace", daemon=True).start()


def ask(directory: Path, calls: int = sys.maxsize) -> tuple[int, list[str]]:
    """Has every process of this machine that listens there write the traces of its last calls.

    How many did, and what others said.
    """
    answered, refused = 0, []
    for path in sorted(directory.glob(f"*{_SUFFIX}")):
        with socket.socket(socket.AF_UNIX) as asking, _Short(path) as short:
            asking.settimeout(_PATIENCE_SECONDS)
            try:
                asking.connect(short)
                asking.sendall(calls.to_bytes(_REQUEST_BYTES, "big"))
                said = asking.recv(_LONGEST_ANSWER).decode(errors="replace")
            except TimeoutError:
                said = f"no answer within {_PATIENCE_SECONDS:g} s: its process is stopped"
            except OSError:
                continue  # it has ended, or runs on another machine
        if said == "written":
            answered += 1
        else:
            refused.append(f"{path.stem}: {said or 'it ended'}")
    return answered, refused


def _answer(listener: socket.socket) -> None:
    from fairring import _core

    while True:
        asking, _ = listener.accept()
        with asking, suppress(OSError):
            asking.settimeout(_PATIENCE_SECONDS)
            calls = int.from_bytes(asking.recv(_REQUEST_BYTES, socket.MSG_WAITALL), "big")
            try:
                _core.write_traces(calls)
                said = "written"
            except RuntimeError as error:
                said = str(error)
            asking.sendall(said.encode())


def _end(path: Path, process: int) -> None:
    if process == os.getpid():
        path.unlink(missing_ok=True)


class _Short:
    """The path by way of its directory's descriptor: addresses of unix sockets have 107 bytes at most."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> str:
        self._directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._directory}/{self._path.name}"

    def __exit__(self, *error: object) -> None:
        os.close(self._directory)
