"""The stage on which cases are played: three machines of the lab, whose nurseries fork the ranks of one case at a time.

Events are messages of the ranks and ends of processes; the stage waits for them and sends the ranks on. Used from one
thread. A play that does not end in time is killed and raises StageError with the words and logs of its ranks.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fairring import lab

MACHINES = (2, 2, 1)  # nurseries of each
OUTSIDER = 4  # the nursery on a machine that 2x2 does not use
START_SECONDS = 120
PATIENCE_SECONDS = 90
FIRST_PORT = 29600


class StageError(AssertionError):
    """A play did not go as its case says; the text holds what was heard."""


class Stage:
    def __init__(self, machines: tuple[int, ...] = MACHINES) -> None:
        self.machine_of = [machine for machine, count in enumerate(machines) for _ in range(count)]  # of a nursery
        self._cleanup = ExitStack()
        self.folder = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory()))
        self._door = self._cleanup.enter_context(socket.socket(socket.AF_UNIX))
        self._door.bind(str(self.folder / "door"))
        self._door.listen()
        command = [sys.executable, str(Path(__file__).with_name("nursery.py")), str(self.folder / "door")]
        self.lab = self._cleanup.enter_context(lab.Lab(command, machines, "none"))
        self._nurseries: dict[int, Connection] = {}
        self._children: dict[int, Connection] = {}  # by pid
        self._connections: list[Connection] = []
        self.born: dict[int, list[int]] = {number: [] for number in range(len(self.machine_of))}
        self.codes: dict[int, int] = {}
        self.heard: dict[int, list[tuple[Any, ...]]] = {}
        self.port = FIRST_PORT
        self.await_(lambda: len(self._nurseries) == len(self.machine_of), START_SECONDS, "the nurseries")

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._cleanup.close()

    def traces(self) -> Counter[str]:
        """The traces that ranks could leave on the machines: children, listeners, shared memory with a name."""
        found = Counter(path.name for path in Path("/dev/shm").iterdir())
        for number, machine in enumerate(self.machine_of):
            process = Path("/proc") / str(self.lab.pid(number))
            found.update(f"machine {machine}: {one}" for one in _listeners(process / "net"))
            found.update(
                f"process {child}" for child in (process / "task" / process.name / "children").read_text().split()
            )
        return found

    def nurseries(self, layout: str) -> list[int]:
        """Those that make up a layout of machines x ranks, in rank order."""
        machines, ranks = (int(count) for count in layout.split("x"))
        return [self.machine_of.index(machine) + rank for machine in range(machines) for rank in range(ranks)]

    def next_port(self) -> int:
        self.port += 1
        return self.port

    def fork(self, nursery: int, target: tuple[str, str], arguments: tuple[Any, ...], env: Mapping[str, str]) -> int:
        """Starts module.function(connection, *arguments) in a process of its own; its pid, when it can be told."""
        count = len(self.born[nursery])
        log = str(self.folder / f"log-{nursery}-{count}")
        self._nurseries[nursery].send((*target, arguments, dict(env), log))
        self.await_(lambda: len(self.born[nursery]) > count, START_SECONDS, f"a child of nursery {nursery}")
        pid = self.born[nursery][-1]
        self.await_(lambda: pid in self._children or pid in self.codes, START_SECONDS, f"process {pid}")
        return pid

    def log(self, nursery: int) -> str:
        """The output of the nursery's last child."""
        return (self.folder / f"log-{nursery}-{len(self.born[nursery]) - 1}").read_text(errors="replace")

    def tell(self, pid: int, word: str) -> None:
        self._children[pid].send(word)

    def await_(self, done: Any, seconds: float, what: str) -> None:
        end = time.monotonic() + seconds
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                raise StageError(f"waited {seconds} s for {what}; heard were {self.heard}")
            for ready in wait([self._door, *self._connections], left):
                self._attend(ready)

    def _attend(self, ready: Any) -> None:
        if ready is self._door:
            connection = Connection(self._door.accept()[0].detach())
            self._connections.append(connection)
            return
        try:
            message = ready.recv()
        except (EOFError, ConnectionResetError):
            self._connections.remove(ready)
            ready.close()
            if ready in self._nurseries.values():
                raise StageError("a nursery has ended") from None
            return
        self._take(ready, message)

    def _take(self, sender: Connection, message: tuple[Any, ...]) -> None:
        nursery = next((number for number, one in self._nurseries.items() if one is sender), None)
        child = next((pid for pid, one in self._children.items() if one is sender), None)
        if nursery is not None:
            pid, code = message
            if code is None:
                self.born[nursery].append(pid)
            else:
                self.codes[pid] = code
        elif child is not None:
            self.heard[child].append(message)
        elif message[0] == "nursery":
            self._nurseries[message[1]] = sender
        else:
            self._children[message[1]] = sender
            self.heard[message[1]] = []


def _listeners(tables: Path) -> list[str]:
    """Sockets that listen, and abstract unix sockets, of one network namespace."""
    tcp = [line.split() for table in ("tcp", "tcp6") for line in (tables / table).read_text().splitlines()[1:]]
    unix = [line.split()[-1] for line in (tables / "unix").read_text().splitlines()[1:]]
    return [f"tcp {fields[1]}" for fields in tcp if fields[3] == "0A"] + [name for name in unix if name.startswith("@")]
