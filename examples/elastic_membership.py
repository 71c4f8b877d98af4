"""Training that goes on when a rank dies and when one joins, in the same processes, without a store.

    python examples/elastic_membership.py --kills 3 --steps 40

Workers train a small model and average their gradients. This process stands for a scheduler: it kills a worker every
so many steps, gives the others the new list of members, then starts another worker and has it join. What it hands out
is a number (uuid) that was never used and each member's handle. After every change the members take the model of the
one that has done the most steps. Prints each change and how long it took; exit code 1 if parameters differ in the end.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

TIMEOUT = timedelta(seconds=60)
BATCH = 32
WIDTH = 64
c10d: Any = dist.distributed_c10d


# --- a worker


def work(scheduler: Connection, machine: str) -> None:
    os.environ["FAIRRING_MACHINE"] = machine  # two workers share memory, others speak TCP
    torch.set_num_threads(1)
    dist.init_process_group("fairring", store=dist.HashStore(), rank=0, world_size=1, enable_reconfigure=True)
    training = Training()
    scheduler.send(("handle", c10d._get_reconfigure_handle()))
    while (members := scheduler.recv()) is not None:
        try:
            c10d._reconfigure(*members, timeout=TIMEOUT).wait()
            training.catch_up()
            scheduler.send(("joined", training.done))
            training.run(scheduler)
        except dist.DistBackendError as error:
            scheduler.send(("failed", str(error)))
    scheduler.send(("ended", training.done, training.sums()))
    dist.destroy_process_group()


class Training:
    """Plain SGD: an optimizer with a state of its own would have to be broadcast with the model."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.done = 0  # steps

    def sums(self) -> list[float]:
        return [parameter.detach().sum().item() for parameter in self.model.parameters()]

    def catch_up(self) -> None:
        """The model and the steps of the member that has done the most."""
        done = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
        dist.all_gather(done, torch.tensor([self.done]))
        steps = [int(each) for each in done]
        self.done = max(steps)
        for parameter in self.model.parameters():
            dist.broadcast(parameter.data, steps.index(self.done))

    def run(self, scheduler: Connection) -> None:
        """Steps until the scheduler has something to say to one of the members; all learn of it in the same step."""
        while True:
            torch.manual_seed(1000 * self.done + dist.get_rank())
            inputs = torch.randn(BATCH, WIDTH)
            self.optimizer.zero_grad()
            functional.mse_loss(self.model(inputs), inputs.sum(1, keepdim=True) / WIDTH).backward()
            news = torch.tensor([1.0 if scheduler.poll() else 0.0])
            gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
            for tensor in [*gradients, news]:
                dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
            if news.item() > 0:
                return
            self.optimizer.step()  # once all gradients have come: a step that fails has changed nothing here
            self.done += 1
            if dist.get_rank() == 0:
                scheduler.send(("step", self.done))


# --- the scheduler


@dataclass
class Worker:
    process: Any
    pipe: Connection
    handle: str = ""


class Scheduler:
    def __init__(self) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.workers: list[Worker] = []
        self._uuids = itertools.count(1)
        self._started = itertools.count()

    def start(self) -> Worker:
        here, there = self.context.Pipe()
        machine = f"machine {next(self._started) // 2}"
        process = self.context.Process(target=work, args=(there, machine), daemon=True)
        process.start()
        there.close()
        worker = Worker(process, here)
        worker.handle = self.hear(worker, "handle")[1]
        return worker

    def hear(self, worker: Worker, *words: str) -> Any:
        """The next message of that worker with one of the words; its steps are passed over."""
        while (message := worker.pipe.recv())[0] not in words:
            if message[0] == "failed":
                raise RuntimeError(message[1])
        return message

    def join(self, members: list[Worker]) -> int:
        """Makes them the members; the most steps that one of them had done."""
        self.workers = members
        uuid, handles = next(self._uuids), [worker.handle for worker in members]
        for worker in members:
            worker.pipe.send((uuid, handles))
        return max(int(self.hear(worker, "joined")[1]) for worker in members)

    def await_steps(self, count: int) -> None:
        last = self.hear(self.workers[0], "step")[1]
        while self.hear(self.workers[0], "step")[1] < last + count:
            pass

    def end(self) -> list[Any]:
        """What each member says of its model."""
        for worker in self.workers:
            worker.pipe.send(None)
        said = [self.hear(worker, "ended")[1:] for worker in self.workers]
        wait([worker.process.sentinel for worker in self.workers])
        return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30, help="between two changes")
    options = parser.parse_args()
    scheduler = Scheduler()
    scheduler.join([scheduler.start() for _ in range(options.workers)])
    for _ in range(options.kills):
        scheduler.await_steps(options.steps)
        victim = scheduler.workers[0]  # rank 0 is as good as any
        began = time.monotonic()
        victim.process.kill()
        survivors = scheduler.workers[1:]
        reasons = [scheduler.hear(worker, "failed")[1] for worker in survivors]
        steps = scheduler.join(survivors)
        print(f"step {steps}: rank 0 was killed; {len(survivors)} go on after {time.monotonic() - began:.2f} s")
        print(f"  {reasons[0]}", flush=True)
        scheduler.await_steps(options.steps)
        newcomer = scheduler.start()
        began = time.monotonic()
        steps = scheduler.join([*survivors, newcomer])
        print(
            f"step {steps}: one has joined; {options.workers} go on after {time.monotonic() - began:.2f} s", flush=True
        )
    scheduler.await_steps(options.steps)
    said = scheduler.end()
    print(f"step {said[0][0]}: parameters are equal on all {len(said)} members: {said.count(said[0]) == len(said)}")
    sys.exit(said.count(said[0]) != len(said))


if __name__ == "__main__":
    main()
