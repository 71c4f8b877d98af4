"""DDP under torchft: replicas train on while one of them is killed and another joins.

    python examples/train_torchft.py --kills 3 --steps 50

Each replica is a process (of a real job: one torchrun each, with as many ranks as it likes). torchft's lighthouse says
who takes part in the next step; a Fairring group takes the members in without a restart. This process runs the
lighthouse, kills a replica every so many steps and starts another in its place. Prints how long it took to go on, and
exits with 1 if parameters differ in the end. --backend gloo does the same over torchft's Gloo group.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

REPLICAS = 3
TIMEOUT = timedelta(seconds=30)
BATCH = 32
CLASSES = 10


# --- a replica


def train(lighthouse: str, name: str, backend: str, width: int, parent: Connection) -> None:
    os.environ["TORCHFT_LIGHTHOUSE"] = lighthouse
    os.environ["FAIRRING_MACHINE"] = name  # so that one host counts as several
    torch.set_num_threads(1)
    import torchft

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, CLASSES))
    sgd = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)

    def state() -> dict[str, Any]:
        return {"model": plain.state_dict(), "optimizer": sgd.state_dict()}

    def load(state: dict[str, Any]) -> None:
        plain.load_state_dict(state["model"])
        sgd.load_state_dict(state["optimizer"])

    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # of this replica's ranks alone
    manager = torchft.Manager(
        pg=process_group(backend), min_replica_size=1, timeout=TIMEOUT, replica_id=name, load_state_dict=load,
        state_dict=state, store_addr="localhost", store_port=store.port, rank=0, world_size=1,
    )  # fmt: skip
    model: Any = torchft.DistributedDataParallel(manager, plain)
    optimizer: Any = torchft.Optimizer(manager, sgd)
    last = sys.maxsize
    while (step := manager.current_step()) < last:
        inputs = torch.randn(BATCH, width)
        optimizer.zero_grad()  # asks the lighthouse who takes part, in the background
        functional.cross_entropy(model(inputs), inputs.argmax(1) % CLASSES).backward()
        optimizer.step()  # only where all went well; otherwise the step is done again
        if manager.current_step() > step:
            parent.send(("step", manager.current_step(), manager.num_participants(), time.monotonic()))
        if parent.poll():
            last = parent.recv()
    parent.send(("end", [parameter.sum().item() for parameter in plain.parameters()]))
    parent.recv()  # others may still want to catch up with this one
    manager.shutdown(wait=False)


def process_group(backend: str) -> Any:
    if backend == "gloo":
        from torchft.process_group import ProcessGroupGloo

        return ProcessGroupGloo(timeout=TIMEOUT)
    from fairring.torchft import ProcessGroupFairring

    return ProcessGroupFairring(timeout=TIMEOUT)


# --- whoever runs the job


class Job:
    def __init__(self, lighthouse: str, backend: str, width: int) -> None:
        self._arguments = (lighthouse, backend, width)
        self._replicas: dict[Connection, Any] = {}
        self._started = 0
        self.done = 0  # steps

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        lighthouse, backend, width = self._arguments
        arguments = (lighthouse, f"replica-{self._started}", backend, width, there)
        process = context.Process(target=train, args=arguments, daemon=True)
        process.start()
        there.close()
        self._replicas[here] = process
        self._started += 1

    def kill(self) -> float:
        """The oldest replica; returns when it was."""
        pipe = next(iter(self._replicas))
        process = self._replicas.pop(pipe)
        killed = time.monotonic()
        process.kill()
        process.join()
        return killed

    def train(self, steps: int = 1) -> float:
        """Until all have done so many steps together; returns when the last of them had done the first."""
        first: dict[Connection, float] = {}
        together = dict.fromkeys(self._replicas, 0)
        while min(together.values()) < steps:
            for pipe in wait(list(self._replicas)):
                assert isinstance(pipe, Connection)
                _, step, participants, when = pipe.recv()
                self.done = max(self.done, step)
                if participants == len(self._replicas):
                    first.setdefault(pipe, when)
                    together[pipe] += 1
        return max(first.values())

    def end(self, steps: int) -> list[list[float]]:
        """After so many more steps: sums of every replica's parameters."""
        for pipe in self._replicas:
            pipe.send(self.done + steps)
        sums = []
        for pipe in self._replicas:
            while (news := pipe.recv())[0] != "end":
                pass
            sums.append(news[1])
        for pipe, process in self._replicas.items():
            pipe.send("over")
            process.join()
        return sums


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["fairring", "gloo"], default="fairring")
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50, help="between two changes")
    parser.add_argument("--width", type=int, default=64, help="of the model")
    arguments = parser.parse_args()
    from torchft.coordination import LighthouseServer

    # How long torchft waits for a replica that is missing, and until it takes one for dead that gives no sign of life.
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=100, heartbeat_timeout_ms=1000)
    job = Job(lighthouse.address(), arguments.backend, arguments.width)
    for _ in range(REPLICAS):
        job.start()
    job.train(arguments.steps)
    for _ in range(arguments.kills):
        killed = job.kill()
        print(
            f"a replica was killed; {REPLICAS - 1} did their next step after {job.train() - killed:.2f} s", flush=True
        )
        job.start()
        job.train(arguments.steps)
        print(f"one has joined; {REPLICAS} train", flush=True)
    sums = job.end(arguments.steps)
    equal = all(each == sums[0] for each in sums)
    print(f"after {job.done + arguments.steps} steps equal on all {len(sums)} replicas: {equal}")
    lighthouse.shutdown()
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
