"""Runs all cases inside a guest: guest.py MACHINE MACHINES. Imports torch once, and forks a rank's process per case.

A rank's output goes to "CASE.RANK.txt" and what the machine saw to "CASE.MACHINE.json", in /run/out.

A case is played once more where soft-RoCE broke its connection. Guests that wait for the host's processor for longer
than a request may take send it again, and now and then soft-RoCE answers such a one as invalid ("remote invalid request
error"): after 7 of its timeouts and some 900 packets that came twice, in the first run where that was seen. On a wire
that loses nothing, no test of ours can cause it. The rank that had answered so may see only that its own requests come
back ("Work Request Flushed Error").
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import torch

import fairring  # noqa: F401
from rdma import bodies, capture
from rdma.cases import CASES, Case

OUT = Path("/run/out")
COUNTERS = Path("/sys/class/infiniband/rxe0/ports/1/hw_counters")
FIRST_PORT = 29500
WIRES = ("10.70.0.255", "10.71.0.255")
MASTER = "10.71.0.1"  # on the second wire: the first is for RDMA alone


def main(machine: int, machines: int) -> None:
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    print(f"guest: torch {torch.__version__} imported after {uptime:.0f} s", flush=True)
    for number, case in enumerate(CASES):
        if machine == 0:
            mark(case.name)
        before, start = counters(), time.monotonic()
        ranks = [rank for rank in range(case.ranks) if rank * machines // case.ranks == machine]
        codes = play_ranks(case, ranks, FIRST_PORT + number)
        again = case.killed is None and any(code == 1 and device_broke(case, rank) for rank, code in codes.items())
        if again:
            codes = play_ranks(case, ranks, FIRST_PORT + len(CASES) + number)
        seen = {name: count - before[name] for name, count in counters().items()}
        report = {"codes": codes, "seconds": time.monotonic() - start, "counters": seen, "again": again}
        (OUT / f"{case.name}.{machine}.json").write_text(json.dumps(report))
        print(f"guest: {case.name}: exit codes {codes}, {report['seconds']:.1f} s", flush=True)
        subprocess.run(["ip", "link", "set", "eth0", "up"], check=True)


def play_ranks(case: Case, ranks: list[int], port: int) -> dict[int, int]:
    """Their exit codes."""
    processes = [(rank, os.fork() or play(case, rank, port)) for rank in ranks]
    return {rank: os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for rank, process in processes}


def device_broke(case: Case, rank: int) -> bool:
    """Whether its output says so, in the words of either side: all machines must come to the same answer."""
    said = output_of(case, rank).read_text()
    return "remote invalid request error" in said or "Work Request Flushed Error" in said


def output_of(case: Case, rank: int) -> Path:
    return OUT / f"{case.name}.{rank}.txt"


def play(case: Case, rank: int, port: int) -> int:
    """In the forked process, which ends here."""
    output = os.open(output_of(case, rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(case.ranks), "MASTER_ADDR": MASTER, "MASTER_PORT": str(port)}
    os.environ |= {"TP_SOCKET_IFNAME": "eth1", "FAIRRING_MACHINE": f"machine {rank}"} | case.variables
    if case.site_ranks:
        os.environ["FAIRRING_SITE"] = f"site {rank // case.site_ranks}"
    code = 1
    try:
        getattr(bodies, case.body)()
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def counters() -> dict[str, int]:
    return {path.name: int(path.read_text()) for path in COUNTERS.iterdir()}


def mark(name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for wire in WIRES:
            with suppress(OSError):  # it may be down still
                sender.sendto(capture.MARK + name.encode(), (wire, capture.DISCARD_PORT))


main(int(sys.argv[1]), int(sys.argv[2]))
