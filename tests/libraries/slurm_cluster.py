"""A Slurm cluster on this machine: one controller and several daemons, each of which stands for a node.

Needs root and Debian's slurmctld, slurmd and slurm-client. Who a user is, the daemons take on trust here (auth/none);
a real cluster has munge for that.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol")
CONFIGURATION = """
ClusterName=fairring
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldParameters=idle_on_node_suspend
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
SchedulerParameters=defer_batch,sched_interval=1
"""


def missing() -> str:
    """The reason why this machine can't have such a cluster; empty: it can."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"no {', '.join(absent)} here: apt-get install slurmctld slurmd slurm-client"
    return "" if os.geteuid() == 0 else "the daemons of Slurm need root"


class SlurmCluster:
    """Nodes node0, node1, ... of so many cores each, from here until the end of a `with`."""

    def __init__(self, folder: Path, nodes: int, cores: int) -> None:
        self._folder = folder
        ports = _free_ports(nodes + 1)
        file = folder / "slurm.conf"
        lines = [CONFIGURATION.format(host=socket.gethostname(), folder=folder, ports=ports)]
        for node in range(nodes):
            place = f"NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={ports[node + 1]}"
            lines.append(f"NodeName=node{node} {place} CPUs={cores} State=UNKNOWN")
        lines.append(f"PartitionName=all Nodes=node[0-{nodes - 1}] Default=YES State=UP MaxTime=INFINITE\n")
        file.write_text("\n".join(lines))
        (folder / "state").mkdir()
        self.environment = {**os.environ, "SLURM_CONF": str(file)}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._start("slurmctld", "-D")
        for node in range(nodes):
            self._start("slurmd", "-D", "-N", f"node{node}")

    def __enter__(self) -> SlurmCluster:
        return self

    def __exit__(self, *_error: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            daemon.wait()

    def submit(self, script: Path, arguments: Sequence[str], environment: Mapping[str, str], output: Path) -> int:
        """Runs a batch script from the repository's root and waits for it. Returns its exit code."""
        command = ["sbatch", "--wait", f"--output={output}", str(script), *arguments]
        return subprocess.run(command, env={**self.environment, **environment}, check=False).returncode

    def logs(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()}" for log in sorted(self._folder.glob("*.log")))

    def _start(self, *command: str) -> None:
        with (self._folder / f"{command[0]}{command[-1]}.log").open("wb") as log:
            self._daemons.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
