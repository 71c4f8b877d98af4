"""The loss over time of a training whose machines die and are replaced, by jobs that go on in different ways.

    python benchmarks/elastic.py --job reconfigure --seconds 100 --every 16 --json reconfigure.json

elastic_curves.py draws the records of several jobs.

The training is that of examples/elastic_membership.py, with DDP, on four machines of two ranks in the lab. A machine is
killed every so often, and another takes its place a little later. A fifth machine holds what no kill may reach.

- undisturbed: nobody is killed;
- reconfigure: the example itself;
- torchrun: its agent on each machine, with the rendezvous c10d, on fairring. When a machine is gone all agents restart
  their ranks, which go on from a checkpoint on a disk that all share;
- torchft over Gloo, where torchft is installed: each rank is a replica.

All ranks, torchrun's too, are forked from a process that has imported torch. Elsewhere torchrun's ranks import it anew:
eight of them on a few cores would take longer for that than for all that is compared here.

All jobs have the same batch for the same step, however many ranks have a part in it. So a step's loss is the same but
for the order of sums. At the end the parameters of all ranks are compared, bit by bit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.nn.parallel import DistributedDataParallel

from fairring import lab
from fairring.lab import names, namespaces
from fairring.lab.cluster import machine_address

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from elastic_membership import MACHINES, RANKS, Scheduler, Training

SAFE = MACHINES  # the machine that nobody kills
TIMEOUT = timedelta(seconds=60)
PATIENCE = timedelta(seconds=5)  # of torchft: Gloo's members meet in a store of one of them, which may be dead
PORT = 29400
CHECKPOINT_STEPS = 20
START_SECONDS, END_SECONDS = 300, 90
VARIABLES = {"TP_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0", "TORCH_FR_BUFFER_SIZE": "0"}

Steps = list[tuple[float, int, float]]  # when one was done, its number, its loss


class Job(ABC):
    """Ranks in a lab of MACHINES + 1 machines."""

    def __init__(self, cluster: lab.Lab, compute_seconds: float) -> None:
        self.cluster, self.compute_seconds = cluster, compute_seconds
        self.steps: Steps = []
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["torch._dynamo", "fairring", "elastic_membership"])

    @abstractmethod
    def start(self, machine: int) -> None:
        """Starts this machine's ranks."""

    @abstractmethod
    def run(self, seconds: float) -> None:
        """So long, or a little longer, hears of steps."""

    @abstractmethod
    def end(self) -> list[Any]:
        """Steps and digest of each rank. Others' jobs: of none if that takes longer than END_SECONDS."""

    def kill(self, machine: int) -> None:
        """All that runs on the machine, but for the process that stands for it in the lab."""
        keeper = self.cluster.pid(machine)
        network = Path(f"/proc/{keeper}/ns/net").readlink()
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and int(entry.name) != keeper and (entry / "ns/net").readlink() == network:
                    os.kill(int(entry.name), signal.SIGKILL)

    def launch(self, machine: int, function: Callable[..., None], *arguments: Any, daemon: bool = True) -> Any:
        """Calls the function in a process on that machine. Only one that is no daemon may start others."""
        words = (self.cluster.pid(machine), function, *arguments)
        process: Any = self.context.Process(target=on_machine, args=words, daemon=daemon)
        process.start()
        return process


def on_machine(machine: int, function: Callable[..., None], *arguments: Any) -> None:
    namespaces.enter_those_of(machine)
    # Else torchrun and its stores wait for a name server, for seconds, each time that they look for an address's name.
    names.add("".join(f"{machine_address(one)} machine{one}\n" for one in range(MACHINES + 1)))
    os.environ.update(VARIABLES)
    function(*arguments)


# --- ranks that reconfigure


class Reconfigure(Job):
    def __init__(self, cluster: lab.Lab, compute_seconds: float) -> None:
        super().__init__(cluster, compute_seconds)
        self._scheduler = Scheduler(cluster, compute_seconds)
        self.steps = self._scheduler.steps

    def start(self, machine: int) -> None:
        self._scheduler.start(machine)

    def run(self, seconds: float) -> None:
        self._scheduler.run(seconds)

    def kill(self, machine: int) -> None:
        self._scheduler.kill(machine)

    def end(self) -> list[Any]:
        self._scheduler.end()
        return self._scheduler.ended


# --- ranks that torchrun restarts


class Torchrun(Job):
    def __init__(self, cluster: lab.Lab, compute_seconds: float) -> None:
        super().__init__(cluster, compute_seconds)
        self._temporary = tempfile.TemporaryDirectory()
        self._directory = Path(self._temporary.name)
        self._lines = 0
        self.launch(SAFE, hold_store)

    def start(self, machine: int) -> None:
        self.launch(machine, agent, machine_address(machine), self._directory, self.compute_seconds, daemon=False)

    def run(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
            self._read()

    def end(self) -> list[Any]:
        (self._directory / "end").touch()
        until = time.monotonic() + END_SECONDS
        ended: list[Any] = []
        while len(ended) < MACHINES * RANKS and time.monotonic() < until:
            time.sleep(0.1)
            ended = [json.loads(path.read_text()) for path in self._directory.glob("ended-*")]
        self._read()
        return ended

    def _read(self) -> None:
        path = self._directory / "steps"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [line.split() for line in lines[self._lines :] if line.endswith("\n")]
        self._lines += len(whole)
        self.steps += [(float(when), int(step), float(loss)) for when, step, loss in whole]


def hold_store() -> None:
    store = dist.TCPStore("0.0.0.0", PORT, is_master=True, wait_for_workers=False)
    while store:
        time.sleep(60)


def agent(address: str, directory: Path, compute_seconds: float) -> None:
    """What torchrun does on a machine, but for the ranks' start: each is a fork of the agent."""
    with (directory / "log").open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    # Else agents keep the address of the store for ranks that the first machine's agent held, and look for it for ever.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    config = LaunchConfig(
        min_nodes=MACHINES, max_nodes=MACHINES, nproc_per_node=RANKS, max_restarts=1000, start_method="fork",
        run_id="elastic", rdzv_backend="c10d", rdzv_endpoint=f"{machine_address(SAFE)}:{PORT}", local_addr=address,
        # A dead agent is given up after two seconds; by default it would be fifteen.
        rdzv_configs={"is_host": "false", "keep_alive_interval": 1, "keep_alive_max_attempt": 2},
    )  # fmt: skip
    elastic_launch(config, restarted)(directory, compute_seconds)


def restarted(directory: Path, compute_seconds: float) -> None:
    dist.init_process_group("fairring", timeout=TIMEOUT)
    rank, world = dist.get_rank(), dist.get_world_size()
    training = Training(compute_seconds)
    checkpoint = directory / "checkpoint"
    if checkpoint.exists():
        training.load(torch.load(checkpoint))
    replica = DistributedDataParallel(training.model)
    ended = 0.0
    while not ended:
        loss = training.backward(replica, rank, world)
        report = torch.tensor([loss, float((directory / "end").exists())])
        dist.all_reduce(report, op=dist.ReduceOp.AVG)
        training.update()
        loss, ended = report.tolist()
        if rank == 0:
            with (directory / "steps").open("a") as steps:
                steps.write(f"{time.monotonic()} {training.done} {loss}\n")
            if training.done % CHECKPOINT_STEPS == 0:
                torch.save(training.state(), directory / "new")
                (directory / "new").rename(checkpoint)
    replace(directory / f"ended-{rank}", json.dumps([training.done, training.digest()]))
    dist.destroy_process_group()


def replace(path: Path, text: str) -> None:
    partial = path.with_name(f"part-{path.name}")
    partial.write_text(text)
    partial.rename(path)


# --- replicas of torchft


class Torchft(Job):
    def __init__(self, cluster: lab.Lab, compute_seconds: float) -> None:
        super().__init__(cluster, compute_seconds)
        self._started = itertools.count()
        self._replicas: dict[Connection, Any] = {}
        self._said: defaultdict[int, dict[Connection, Any]] = defaultdict(dict)  # by step and replica: its digest
        here, there = self.context.Pipe()
        self.launch(SAFE, light, there)
        self._address = here.recv()

    def start(self, machine: int) -> None:
        for _ in range(RANKS):
            here, there = self.context.Pipe()
            words = (machine_address(machine), self._address, next(self._started), self.compute_seconds, there)
            self._replicas[here] = self.launch(machine, replica, *words)
            there.close()

    def run(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._hear(left)

    def end(self) -> list[Any]:
        """Of a step that all have done. All train on: what a replica lacks it can have from those that do."""
        for pipe in self._replicas:
            pipe.send("say what you have")
        until = time.monotonic() + END_SECONDS
        together: list[dict[Connection, Any]] = []
        while not together and (left := until - time.monotonic()) > 0:
            self._hear(left)
            together = [one for one in self._said.values() if one.keys() == self._replicas.keys()]
        return list(together[0].values()) if together else []

    def _hear(self, seconds: float | None) -> None:
        for pipe in wait(list(self._replicas), seconds):
            assert isinstance(pipe, Connection)
            try:
                word, step, value = pipe.recv()
            except (EOFError, ConnectionResetError):  # it is dead
                self._replicas.pop(pipe).join()
                continue
            if word == "step":
                self.steps.append((time.monotonic(), step, value))
            else:
                self._said[step][pipe] = [step, value]


def light(parent: Connection) -> None:
    from torchft.coordination import LighthouseServer

    # How long torchft waits for a replica that is missing, and until it takes one for dead that gives no sign of life.
    server = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=1000, heartbeat_timeout_ms=1000)
    parent.send(f"http://{machine_address(SAFE)}:{server.address().rpartition(':')[2]}")
    while True:
        time.sleep(60)


def replica(address: str, lighthouse: str, number: int, compute_seconds: float, parent: Connection) -> None:
    socket.gethostname = lambda: address  # the machines of the lab share the name of their host
    os.environ["TORCHFT_LIGHTHOUSE"] = lighthouse
    import torchft
    from torchft.process_group import ProcessGroupGloo

    training = Training(compute_seconds)
    store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=ProcessGroupGloo(timeout=PATIENCE), min_replica_size=1, timeout=PATIENCE, replica_id=str(number),
        load_state_dict=training.load, state_dict=training.state, store_addr=address, store_port=store.port, rank=0,
        world_size=1, init_sync=False,
    )  # fmt: skip
    model: Any = torchft.DistributedDataParallel(manager, training.model)
    while True:
        manager.start_quorum()
        rank, world = manager.participating_rank(), manager.num_participants()
        training.done = manager.current_step()
        loss = torch.tensor(training.backward(model, rank or 0, world))
        manager.allreduce(loss).wait()
        if manager.should_commit():
            training.update()
            if rank == 0:
                parent.send(("step", training.done, loss.item()))
            if parent.poll():
                parent.send(("digest", training.done, training.digest()))


# --- the play


@dataclass(frozen=True)
class Record:
    """Seconds are since the first step of the job."""

    job: str
    seconds: float  # of the whole
    steps: Steps
    kills: list[float]
    equal: bool  # parameters and steps, on all ranks in the end
    torch: str
    cores: int | None
    load: float


def play(name: str, options: argparse.Namespace) -> Record:
    kinds: dict[str, type[Job]] = {"torchrun": Torchrun, "torchft": Torchft}
    kills: list[float] = []
    with lab.Lab(["sleep", "infinity"], [1] * (MACHINES + 1), options.rate, network="namespaces") as cluster:
        job = kinds.get(name, Reconfigure)(cluster, options.compute)
        for machine in range(MACHINES):
            job.start(machine)
        until = time.monotonic() + START_SECONDS
        while not job.steps and time.monotonic() < until:
            job.run(0.1)
        if not job.steps:
            raise RuntimeError(f"{name}: no step within {START_SECONDS} s; look at the output of its ranks")
        began = job.steps[0][0]
        load = os.getloadavg()[0]
        times = itertools.takewhile(lambda at: at < options.seconds, itertools.count(options.every, options.every))
        for kill, at in enumerate([] if name == "undisturbed" else times):
            job.run(began + at - time.monotonic())
            kills.append(time.monotonic() - began)
            job.kill(kill % MACHINES)
            job.run(options.away)
            job.start(kill % MACHINES)
        job.run(began + options.seconds - time.monotonic())
        until = time.monotonic() - began
        ended = job.end()
        if name in kinds:
            for machine in range(MACHINES + 1):
                job.kill(machine)
    steps = [(when - began, step, loss) for when, step, loss in job.steps if when - began <= until]
    equal = len(ended) == MACHINES * RANKS and ended.count(ended[0]) == len(ended)
    return Record(name, until, steps, kills, equal, torch.__version__, os.cpu_count(), load)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", required=True, choices=["undisturbed", "reconfigure", "torchrun", "torchft"])
    parser.add_argument("--seconds", type=float, default=100.0, help="of the job (%(default)s)")
    parser.add_argument("--every", type=float, default=16.0, help="seconds from kill to kill (%(default)s)")
    parser.add_argument("--away", type=float, default=2.0, help="seconds until another machine comes (%(default)s)")
    parser.add_argument("--compute", type=float, default=0.03, help="seconds of a step besides (%(default)s)")
    parser.add_argument("--rate", default="1gbit", help="of each machine's link (%(default)s)")
    parser.add_argument("--json", type=Path, help="a file for the record")
    options = parser.parse_args()
    record = play(options.job, options)
    print(record.job, "steps", record.steps[-1][:2], "equal", record.equal)
    if options.json:
        options.json.write_text(json.dumps(asdict(record)))


if __name__ == "__main__":
    main()
