"""A process of the lab: launched into a machine as the leader of its own session, its end announced by a pidfd.

Owned by the lab, used from one thread. Invariant: while the leader is not reaped its process group's number belongs to
it, so signals go to the whole group and can never reach a stranger.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_PACKAGE = Path(__file__).parent
# Runs fairring.lab.<module> with stand-ins for the packages around it, since fairring/__init__.py imports torch.
_BOOT = """
import sys, types
folder, module = sys.argv[1:3]
sys.path[:] = [path for path in sys.path if path]
for name, path in (("fairring", folder + "/.."), ("fairring.lab", folder)):
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [path]
from importlib import import_module
sys.exit(import_module("fairring.lab." + module).main(sys.argv[3:]))
"""


@dataclass(frozen=True)
class Machine:
    """The namespaces of a machine, None if the lab has none, and the extra lines for its hosts file."""

    user: int | None = None
    net: int | None = None
    hosts: str = ""

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(descriptor for descriptor in (self.user, self.net) if descriptor is not None)


@dataclass(frozen=True)
class Setting:
    """How a process is started. inherit_output: it writes where the lab writes, so it sees a terminal."""

    machine: Machine
    environment: Mapping[str, str]
    inherit_output: bool = False


def lab_python(module: str, *arguments: str, isolated: bool) -> list[str]:
    """The command that runs main() of fairring.lab.<module>. isolated: the standard library is enough for it."""
    options = ["-I", "-S"] if isolated else []
    return [sys.executable, *options, "-c", _BOOT, str(_PACKAGE), module, *arguments]


class Child:
    """A running process. code: None until it has ended, then 128+n for signal n as in a shell."""

    def __init__(self, command: Sequence[str], setting: Setting) -> None:
        machine = setting.machine
        # The kernel ties this to the thread that starts the process; only the main thread lives as long as the lab.
        parent = str(os.getpid()) if threading.current_thread() is threading.main_thread() else ""
        names = ["" if descriptor is None else str(descriptor) for descriptor in (machine.user, machine.net)]
        pipe = None if setting.inherit_output else subprocess.PIPE
        self._process = subprocess.Popen(
            lab_python("launch", *names, machine.hosts, parent, *command, isolated=True),
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=dict(setting.environment),
            pass_fds=machine.descriptors,
            start_new_session=True,
            bufsize=0,
        )
        self.pid = self._process.pid
        self.code: int | None = None
        self.ended = os.pidfd_open(self.pid)
        streams = {"stdout": self._process.stdout, "stderr": self._process.stderr}
        self.pipes: dict[str, IO[bytes]] = {name: pipe for name, pipe in streams.items() if pipe is not None}
        for pipe_end in self.pipes.values():
            os.set_blocking(pipe_end.fileno(), False)

    def signal(self, signum: int) -> None:
        """Sends a signal to the whole process group. No effect once the leader has ended."""
        if self.code is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signum)

    def reap(self) -> int:
        """To be called after `ended` became readable: kills processes left in its group, and returns the code."""
        self.signal(signal.SIGKILL)
        code = self._process.wait()
        self.code = 128 - code if code < 0 else code
        os.close(self.ended)
        return self.code
