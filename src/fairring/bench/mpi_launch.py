"""One run of mpirun, and the commands that it wants to run on other machines. Standard library only.

The agent is a line of shell that calls mpi_agent.py with the path of a unix socket here. Each agent that mpirun starts
connects, says host and command, and lives until the socket is closed, as a shell over ssh would live with its command.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

RESULT = "fairring-bench-mpi "
AGENT = Path(__file__).with_name("mpi_agent.py")
MOST_SECONDS = 600.0  # of one job
GRACE_SECONDS = 10.0
RENAMING = ["unshare", "--uts"]
# By MPI: what it needs to know besides the hosts. As root, since a cluster's container or namespace often is.
ENVIRONMENT = {
    "openmpi": {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
    },
    "impi": {"I_MPI_HYDRA_BOOTSTRAP": "ssh", "I_MPI_PIN": "0"},
}
AGENT_VARIABLES = {
    "openmpi": ("PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent"),
    "impi": ("I_MPI_HYDRA_BOOTSTRAP_EXEC",),
}


class LaunchError(RuntimeError):
    """mpirun did not get as far as it should; the text holds what it wrote."""


class Launch:
    """mpi: of ENVIRONMENT. hosts: address and ranks of each machine, this one first. program: its result's line begins
    with RESULT.
    """

    def __init__(self, mpi: str, hosts: list[tuple[str, int]], mpirun: Sequence[str], program: Sequence[str]) -> None:
        self._hosts = hosts
        self._agents: list[socket.socket] = []
        self._folder = tempfile.TemporaryDirectory(prefix="fairring-mpi-")
        folder = Path(self._folder.name)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / "agents"))
        self._listener.listen(len(hosts))
        agent = folder / "agent"
        line = shlex.join([sys.executable, "-I", "-S", str(AGENT), str(folder / "agents")])
        agent.write_text(f'#!/bin/sh\nexec {line} "$@" > /dev/null 2>&1\n')  # mpirun's output is mpirun's alone
        agent.chmod(0o700)
        self._process = subprocess.Popen(
            [*mpirun, *self._options(mpi, folder), *program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**environment(mpirun[0]), **ENVIRONMENT[mpi], **dict.fromkeys(AGENT_VARIABLES[mpi], str(agent))},
        )

        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        """Collects the output. After the result no daemon is needed: Intel's mpirun waits for its agents to end."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)
            if line.startswith(RESULT):
                self._release()

    def _release(self) -> None:
        for agent in self._agents:
            with suppress(OSError):  # it has ended already
                agent.shutdown(socket.SHUT_RDWR)

    def _options(self, mpi: str, folder: Path) -> list[str]:
        world = ["-n", str(sum(ranks for _, ranks in self._hosts))]
        lines = [f"{address}:{ranks}" for address, ranks in self._hosts]
        if mpi == "openmpi":
            return [*world, "--host", ",".join(lines), "--bind-to", "none", "--leave-session-attached"]
        hosts = folder / "hosts"
        hosts.write_text("".join(f"{line}\n" for line in lines))
        return [*world, "-machinefile", str(hosts)]

    def commands(self, patience: float) -> dict[str, str]:
        """The command for each host, by address. Raises LaunchError if mpirun does not ask for all in this time."""
        wanted: dict[str, str] = {}
        end = time.monotonic() + patience
        with os.fdopen(os.pidfd_open(self._process.pid), "rb") as ended:
            while len(wanted) < len(self._hosts) - 1:
                waited = [self._listener.fileno(), ended.fileno()]
                ready, _, _ = select.select(waited, [], [], max(0.0, end - time.monotonic()))
                if self._listener.fileno() not in ready:
                    self._end()
                    raise LaunchError(
                        f"mpirun did not start its daemons: {' '.join(''.join(self._lines).split())[-500:]}"
                    )
                agent, _ = self._listener.accept()
                self._agents.append(agent)
                words = json.loads(agent.makefile("rb").readline())
                at = next(place for place, word in enumerate(words) if word in dict(self._hosts))
                wanted[words[at]] = " ".join(words[at + 1 :])  # as ssh hands it to a shell
        return wanted

    def finish(self) -> tuple[int, str]:
        """The exit code of mpirun and what it wrote; past MOST_SECONDS it is killed."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(MOST_SECONDS)
        code = self._end()
        return code, "".join(self._lines)

    def close(self) -> None:
        self._end()
        for agent in self._agents:
            agent.close()
        self._listener.close()
        self._folder.cleanup()

    def _end(self) -> int:
        """Ends mpirun if it still runs, and its agents; all of its output has been read then."""
        self._process.kill()
        code = self._process.wait()
        self._release()
        self._reader.join()
        return code


class RemoteCommand:
    """A command that mpirun wants here, while the context lasts; it ends by itself when the job does. None: nothing."""

    def __init__(self, command: Sequence[str] | None) -> None:
        self._process = None if command is None else subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()


def shell(command: str, hostname: str | None) -> list[str]:
    """The command as ssh runs it. hostname: a name for this machine that only the command sees; None: the real one."""
    if hostname is None:
        return ["sh", "-c", command]
    return [*RENAMING, "sh", "-c", f"hostname {hostname} && {command}"]


def can_rename() -> bool:
    """Whether shell() can give a name here."""
    try:
        return subprocess.run([*RENAMING, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def environment(mpirun: str) -> dict[str, str]:
    """In which mpirun finds its own programs, wherever it is installed."""
    return {**os.environ, "PATH": f"{Path(mpirun).parent}:{os.environ.get('PATH', '')}"}
