"""DDP that goes on while machines are killed and others join: in the same processes, without a store.

    python examples/elastic_membership.py --kills 10 --every 6

Eight workers, two on each of four machines of an emulated cluster (`fairring lab`), train a model with PyTorch's own
DistributedDataParallel. This process stands for a scheduler. Every few seconds it kills a machine, has the others go on
without it, starts two workers in its place and has them join. It hands out only a number (uuid) that was never used
and the members' handles.

To copy: `work` and `Training`, and of the scheduler `_regroup`, which says when it is time for a new list of members.
Prints each change; exit code 1 if the parameters differ in the end.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import multiprocessing
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from fairring import lab
from fairring.lab import namespaces

MACHINES, RANKS = 4, 2
TIMEOUT = timedelta(seconds=60)
BATCH = 48  # of a step, whoever takes part: two to eight workers have equal parts of it
INPUTS, WIDTH = 16, 128
PAUSE = "pause"  # the scheduler's word to workers that train: others are ready to join
c10d: Any = dist.distributed_c10d


# --- a worker


def work(scheduler: Connection, machine: int, compute_seconds: float) -> None:
    namespaces.enter_those_of(machine)  # only in the lab; elsewhere the worker is started on its machine
    os.environ["TP_SOCKET_IFNAME"] = "eth0"
    os.environ["TORCH_FR_BUFFER_SIZE"] = "0"  # else torch's flight recorder takes seconds to write that a group failed
    dist.init_process_group("fairring", store=dist.HashStore(), rank=0, world_size=1, enable_reconfigure=True)
    training = Training(compute_seconds)
    scheduler.send(("ready", c10d._get_reconfigure_handle()))
    while (members := next_members(scheduler)) is not None:
        try:
            c10d._reconfigure(*members, timeout=TIMEOUT).wait()
            training.catch_up()
            train(training, scheduler)
            scheduler.send(("waits", ""))
        except dist.DistBackendError as error:
            scheduler.send(("waits", str(error)))
    scheduler.send(("ended", training.done, training.digest()))
    dist.destroy_process_group()


def next_members(scheduler: Connection) -> Any:
    """Their number and handles, or None at the end. A request to pause that came too late is passed over."""
    while (message := scheduler.recv()) == PAUSE:
        pass
    return message


def train(training: Training, scheduler: Connection) -> None:
    """Steps until the scheduler asks one of the members to pause; all learn of it in the same step."""
    # A new wrapper for each membership. An old one has ordered its buckets by the gradients of its first step, and its
    # all-reduces would not be those of a member that has just begun.
    replica = DistributedDataParallel(training.model, init_sync=False)
    while True:
        loss = training.backward(replica, dist.get_rank(), dist.get_world_size())
        report = torch.tensor([loss, float(scheduler.poll())])
        dist.all_reduce(report, op=dist.ReduceOp.AVG)
        training.update()  # after the step's last call: a step that fails has changed nothing here
        loss, paused = report.tolist()
        if dist.get_rank() == 0:
            scheduler.send(("step", training.done, loss))
        if paused:
            return


class Training:
    """compute_seconds: of a step, besides the model's own; in place of an accelerator's work."""

    def __init__(self, compute_seconds: float) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.compute_seconds = compute_seconds
        self.teacher = nn.Sequential(nn.Linear(INPUTS, INPUTS), nn.Tanh(), nn.Linear(INPUTS, 1)).requires_grad_(False)
        for parameter in self.teacher.parameters():
            parameter.mul_(3)  # harder to learn
        layers = [nn.Linear(INPUTS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)]
        self.model = nn.Sequential(*layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.done = 0  # steps

    def batch(self, rank: int, world: int) -> tuple[Tensor, Tensor]:
        """The part of a rank. All parts together are the same for each number of ranks, and follow from the step."""
        inputs = torch.randn(BATCH, INPUTS, generator=torch.Generator().manual_seed(self.done))
        part = inputs.tensor_split(world)[rank]
        return part, self.teacher(part)

    def backward(self, replica: nn.Module, rank: int, world: int) -> float:
        """Leaves the average of the gradients in the parameters; the loss of this rank's part."""
        inputs, targets = self.batch(rank, world)
        time.sleep(self.compute_seconds)
        self.optimizer.zero_grad()
        loss = functional.mse_loss(replica(inputs), targets)
        loss.backward()
        return loss.item()

    def update(self) -> None:
        self.optimizer.step()
        self.done += 1

    def catch_up(self) -> None:
        """Takes the state of a member that has done the most steps, if not all have done as many.

        The state arrives as a whole before any of it is used: the one that sends it may die too, and the own state
        must still be that of the own steps.
        """
        done = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
        dist.all_gather(done, torch.tensor([self.done]))
        steps = [int(each) for each in done]
        if min(steps) < max(steps):
            state = [self.state()]
            dist.broadcast_object_list(state, steps.index(max(steps)))
            self.load(state[0])

    def state(self) -> dict[str, Any]:
        return {"done": self.done, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done = state["done"]

    def digest(self) -> str:
        """Equal where all parameters are, bit by bit."""
        parameters = nn.utils.parameters_to_vector(self.model.parameters()).detach()
        return hashlib.sha256(parameters.numpy().tobytes()).hexdigest()


# --- the scheduler


@dataclass
class Worker:
    machine: int
    process: Any
    pipe: Connection
    state: str = "starts"  # then it is "ready", and "trains" or "waits" in turns
    handle: str = ""


class Scheduler:
    """steps: when each was heard of, its number, its loss. ended: the steps and the digest of each worker."""

    def __init__(self, cluster: lab.Lab, compute_seconds: float) -> None:
        self._cluster, self._compute_seconds = cluster, compute_seconds
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torch._dynamo", "fairring"])  # new workers need not import them again
        self._uuids = itertools.count(1)
        self._workers: list[Worker] = []
        self._news, self._since, self._members, self._regrouped = "", 0.0, 0, False
        self._reason = ""  # why a worker stopped, if not for others to join
        self.steps: list[tuple[float, int, float]] = []
        self.ended: list[Any] = []

    def start(self, machine: int) -> None:
        for _ in range(RANKS):
            here, there = self._context.Pipe()
            arguments = (there, self._cluster.pid(machine), self._compute_seconds)
            process: Any = self._context.Process(target=work, args=arguments, daemon=True)
            process.start()
            there.close()
            self._workers.append(Worker(machine, process, here))

    def kill(self, machine: int) -> None:
        """Says so to nobody: the others find out by their connections, this process by its pipes."""
        self._news, self._since = f"machine {machine} was killed", time.monotonic()
        for worker in self._workers:
            if worker.machine == machine:
                worker.process.kill()

    def run(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._hear(left)
            self._regroup()

    def settle(self) -> None:
        """Until all workers train together and have done a step since the last change."""
        while self._news or any(worker.state != "trains" for worker in self._workers):
            self._hear(None)
            self._regroup()

    def end(self) -> bool:
        """Whether all workers have done the same steps and have the same parameters."""
        self.settle()
        while any(worker.state == "trains" for worker in self._workers):
            self._pause()
            self._hear(None)
        for worker in self._workers:
            worker.pipe.send(None)
        while self._workers:
            self._hear(None)
        return self.ended.count(self.ended[0]) == len(self.ended)

    def _hear(self, seconds: float | None) -> None:
        if not self._workers:
            raise RuntimeError("no worker is left: look at their output for the reason")
        ready = wait([worker.pipe for worker in self._workers], seconds)
        for worker in [worker for worker in self._workers if worker.pipe in ready]:
            try:
                word, *values = worker.pipe.recv()
            except (EOFError, ConnectionResetError):  # it is dead
                self._workers.remove(worker)
                worker.process.join()
                continue
            if word == "step":
                self._count(*values)
            elif word == "ended":
                self.ended.append(values)
            else:
                worker.state = word
                if word == "waits":
                    self._reason = values[0]
                else:
                    (worker.handle,) = values
                    self._news, self._since = f"machine {worker.machine} was ready to join", time.monotonic()

    def _regroup(self) -> None:
        """Hands out new members when none of the old ones trains any more, and has them pause if others are ready."""
        states = {worker.state for worker in self._workers}
        if "starts" in states and "waits" not in states:
            return  # those that are ready wait for those that are not, but survivors wait for nobody
        if "trains" in states:
            if "ready" in states:
                self._pause()
            return
        members = sorted((w for w in self._workers if w.state != "starts"), key=lambda worker: worker.machine)
        self._members, self._regrouped = len(members), True
        message = next(self._uuids), [worker.handle for worker in members]
        for worker in members:
            worker.state = "trains"
            self._tell(worker, message)

    def _pause(self) -> None:
        for worker in self._workers:
            if worker.state == "trains":
                self._tell(worker, PAUSE)

    def _tell(self, worker: Worker, message: Any) -> None:
        with suppress(BrokenPipeError):  # it is dead, of which its pipe tells next
            worker.pipe.send(message)

    def _count(self, step: int, loss: float) -> None:
        now = time.monotonic()
        self.steps.append((now, step, loss))
        if self._regrouped:
            change = f"{self._members} train {now - self._since:.2f} s after {self._news}"
            print(f"step {step}, loss {loss:.4f}: {change}\n  {self._reason}".rstrip(), flush=True)
            self._news, self._regrouped = "", False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="of machines (%(default)s)")
    parser.add_argument("--every", type=float, default=6.0, help="seconds from kill to kill (%(default)s)")
    parser.add_argument("--away", type=float, default=2.0, help="seconds until another machine comes (%(default)s)")
    parser.add_argument("--compute", type=float, default=0.03, help="seconds of a step besides (%(default)s)")
    options = parser.parse_args()
    with lab.Lab(["sleep", "infinity"], [1] * MACHINES, network="namespaces") as cluster:
        scheduler = Scheduler(cluster, options.compute)
        for machine in range(MACHINES):
            scheduler.start(machine)
        for kill in range(options.kills):
            scheduler.settle()
            scheduler.run(options.every - options.away)
            scheduler.kill(kill % MACHINES)  # that of rank 0 is as good as any
            scheduler.settle()
            scheduler.run(options.away)
            scheduler.start(kill % MACHINES)
        equal = scheduler.end()
    print(f"step {scheduler.ended[0][0]}: parameters are equal on all {len(scheduler.ended)} workers: {equal}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
