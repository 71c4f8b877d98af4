"""Starts an MPI program on the machines of the lab.

    fairring lab --machines 2 -- python benchmarks/mpi/start.py RANKS MPIRUN PROGRAM ARGUMENTS...

One of these runs on every machine. That of machine 0 runs mpirun, which wants to reach the others by something like
ssh: it gets a script that enters their network namespaces instead. The others stay until it is done.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from fairring.bench.link import own_address
from fairring.bench.placement import Placement

MOST_TIME = timedelta(minutes=30)  # of the program
# Both: no pinning, for the lab's machines share the cores; TCP between machines, shared memory inside.
OPEN_MPI = (
    "--allow-run-as-root --oversubscribe --bind-to none --prtemca plm_ssh_agent {agent} --host {slots} -n {world}"
    " --prtemca prte_if_include {interface} --mca pml ob1 --mca btl self,sm,tcp --mca btl_tcp_if_include {interface}"
)
INTEL_MPI = (
    "-bootstrap ssh -bootstrap-exec {agent} -iface {interface} -hosts {hosts} -ppn {ranks} -n {world}"
    " -genv I_MPI_PIN 0 -genv I_MPI_FABRICS shm:ofi -genv FI_PROVIDER tcp -genv FI_TCP_IFACE {interface}"
)


def flavour(mpirun: str) -> str:
    """The options of this mpirun."""
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True).stdout
    return INTEL_MPI if "Intel" in version else OPEN_MPI


def agent_text(pids: dict[str, int]) -> str:
    """A script that is called as ssh is: OPTIONS HOST COMMAND... Each machine gets a host name of its own, too."""
    cases = "".join(f"{address}) pid={pid} name=lab{i} ;;\n" for i, (address, pid) in enumerate(pids.items()))
    return (
        "#!/bin/sh\nwhile case $1 in -*) true ;; *) false ;; esac; do shift; done\n"
        f"host=$1\nshift\ncase $host in\n{cases}esac\n"
        'exec nsenter --target "$pid" --net unshare --uts sh -c "hostname $name; $*"\n'
    )


def run(ranks: int, mpirun: str, program: list[str], own: str, pids: dict[str, int]) -> int:
    """own: this machine's address. pids: a process on each machine, this one first, by address."""
    with tempfile.TemporaryDirectory() as directory:
        agent = Path(directory, "enter")
        agent.write_text(agent_text(pids))
        agent.chmod(0o755)
        options = flavour(mpirun).format(
            agent=agent,
            interface=os.environ["GLOO_SOCKET_IFNAME"],
            slots=",".join(f"{address}:{ranks}" for address in pids),
            hosts=",".join(pids),
            ranks=ranks,
            world=ranks * len(pids),
        )
        return subprocess.run([agent, own, shlex.join([mpirun, *options.split(), *program])]).returncode


def main() -> int:
    code = 0
    dist.init_process_group("gloo", timeout=MOST_TIME)
    machines: list[tuple[str, int]] = [("", 0)] * dist.get_world_size()
    own = own_address(Placement.from_environment())
    dist.all_gather_object(machines, (own, os.getpid()))
    if dist.get_rank() == 0:
        code = run(int(sys.argv[1]), sys.argv[2], sys.argv[3:], own, dict(machines))
    dist.barrier()
    dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
