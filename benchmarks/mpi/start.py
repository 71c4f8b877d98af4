"""Starts an MPI program on the machines of the lab.

    fairring lab --machines 2 -- python benchmarks/mpi/start.py RANKS MPIRUN PROGRAM ARGUMENTS...

One of these runs on every machine. That of machine 0 runs mpirun, which wants to reach the others by something like
ssh: it gets a script that enters their network namespaces instead. The others stay until it is done.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE_SECONDS = 30.0
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


def wait_for_others(machines: int) -> tuple[dict[str, int], list[socket.socket]]:
    """Address and process of each machine, this one first, and the connections that keep the others waiting."""
    pids = {os.environ["MASTER_ADDR"]: os.getpid()}
    guests = []
    with socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as listener:
        listener.settimeout(PATIENCE_SECONDS)
        while len(pids) < machines:
            guest, (address, _) = listener.accept()
            pids[address] = int(guest.recv(16))
            guests.append(guest)
    return pids, guests


def stay() -> None:
    """Until machine 0 is done."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            host = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
            break
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
    with host:
        host.sendall(str(os.getpid()).encode())
        host.recv(1)


def main() -> int:
    ranks, mpirun, program = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if os.environ["RANK"] != "0":
        stay()
        return 0
    pids, guests = wait_for_others(int(os.environ["WORLD_SIZE"]))
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
        code = subprocess.run([agent, next(iter(pids)), shlex.join([mpirun, *options.split(), *program])]).returncode
    for guest in guests:
        guest.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
