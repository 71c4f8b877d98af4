"""The program that the lab starts as each of its ranks: imports torch once, then forks a process for every order.

An order is a connection's message (module, function, arguments, environment, path of a log). The child connects to the
stage by itself, so that the nursery only starts processes and tells how they ended. A child ends as any Python program
does, with its exit hooks. Usage: nursery.py ADDRESS
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from multiprocessing.connection import Client, Connection, wait
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch.distributed  # noqa: F401  so that the children need not

import fairring  # noqa: F401  registers the backend on torch before 2.15


def main() -> None:
    address, number = sys.argv[1], int(os.environ["RANK"])
    stage = Client(address, "AF_UNIX")
    stage.send(("nursery", number))
    running: dict[int, int] = {}  # pidfd -> pid
    while True:
        for ready in wait([stage, *running]):
            if isinstance(ready, int):
                pid = running.pop(ready)
                os.close(ready)
                stage.send((pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
                continue
            try:
                order = stage.recv()
            except EOFError:
                return
            pid = os.fork()
            if pid == 0:
                for pidfd in running:
                    os.close(pidfd)
                _live(address, stage, order)
                return
            running[os.pidfd_open(pid)] = pid
            stage.send((pid, None))


def _live(address: str, nursery: Connection, order: tuple[str, str, tuple[Any, ...], dict[str, str], str]) -> None:
    gc.freeze()  # else every collection goes through all of torch's objects, and so copies their pages
    nursery.close()
    module, function, arguments, environment, log = order
    # PyTorch's flight recorder dumps a group that fails, and keeps its store for ever.
    os.environ.update({"TORCH_FR_BUFFER_SIZE": "0", **environment})
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    with Client(address, "AF_UNIX") as stage:
        stage.send(("child", os.getpid()))
        getattr(importlib.import_module(module), function)(stage, *arguments)


main()
