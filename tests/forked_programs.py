"""Programs of tests/programs, each played by a process that is forked with torch imported (forked.py).

What a lab starts is only a placeholder: it connects to this process, and ends as its player does. The player has the
placeholder's namespaces, environment, directory, arguments and output, and is killed when the placeholder is. It skips
the hooks of Python's exit, and signals to the placeholder don't reach it: tests of either run programs as they are.
"""

from __future__ import annotations

import functools
import gc
import os
import runpy
import socket
import struct
import sys
import tempfile
import threading
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import forked
from lab_programs import PROGRAMS, PYTHON

from fairring.lab import namespaces

_PLACEHOLDER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as player:
    player.connect(sys.argv[1])
    sys.exit(int(player.recv(8)) % 256)
"""
_MOST_AT_ONCE = 64


def forked_program(name: str, *arguments: str) -> list[str]:
    """The command of a placeholder. The program is imported in none of the processes before it runs."""
    return [*PYTHON, _PLACEHOLDER, _door(), str(PROGRAMS / f"{name}.py"), *arguments]


@functools.cache
def _door() -> str:
    """The path at which placeholders are let in for as long as this process lives."""
    folder = tempfile.TemporaryDirectory(prefix="fairring-players-")
    path = str(Path(folder.name, "door"))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(_MOST_AT_ONCE)
    threading.Thread(target=_admit, args=(listener, forked.context(), folder), daemon=True).start()
    return path


def _admit(listener: socket.socket, context: ForkServerContext, _folder: tempfile.TemporaryDirectory[str]) -> None:
    """A thread of its own. It alone starts players and asks how they ended: both concern all processes of a context."""
    players: dict[int, ForkServerProcess] = {}  # sentinel -> player
    placeholders: dict[int, socket.socket] = {}  # sentinel -> its placeholder
    while True:
        ready = wait([listener, *players, *placeholders.values()])
        for sentinel in [sentinel for sentinel in players if sentinel in ready]:
            code = players.pop(sentinel).exitcode
            with placeholders.pop(sentinel) as placeholder, suppress(OSError):
                placeholder.sendall(str(code).encode())
        for sentinel, placeholder in placeholders.items():
            if placeholder in ready:  # it reports nothing, so it was killed
                players[sentinel].kill()
        if listener in ready:
            placeholder, _ = listener.accept()
            pid, _, _ = struct.unpack("iii", placeholder.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            player = context.Process(target=_play, args=(pid,), daemon=True)
            player.start()
            players[player.sentinel], placeholders[player.sentinel] = player, placeholder


def _play(pid: int) -> None:
    gc.freeze()  # as the nursery of failures does
    place = Path("/proc", str(pid))
    arguments = (place / "cmdline").read_bytes().decode().split("\0")[:-1]
    variables = (place / "environ").read_bytes().decode().split("\0")[:-1]
    for stream in (1, 2):
        descriptor = os.open(place / "fd" / str(stream), os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, stream)
        os.close(descriptor)
    os.chdir((place / "cwd").readlink())
    namespaces.enter_those_of(pid, ("user", "mnt", "net"))
    os.environ.clear()
    for name, _, value in (variable.partition("=") for variable in variables):
        os.environ[name] = value
    sys.argv = arguments[arguments.index(_PLACEHOLDER) + 2 :]
    sys.path.insert(0, str(PROGRAMS))
    runpy.run_path(sys.argv[0], run_name="__main__")
