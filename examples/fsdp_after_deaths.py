"""FSDP2 training whose ranks die: the survivors load the last checkpoint onto fewer ranks and train on.

    python examples/fsdp_after_deaths.py

Four workers train a small model, sharded over all of them, and save it with torch.distributed.checkpoint every few
steps. Two of them die in the middle of a step, and their shards with them. The other two, still the same processes,
make a group of two, load the checkpoint and train to the end. A step's batch is the same however many ranks share it.
Then two fresh workers are told to train from that checkpoint. Exit code 1 if their losses differ from the survivors'.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

STEPS = 10
SAVE_EVERY = 3
DEATH = 7  # the step in which ranks die
DEAD = (2, 3)
BATCH = 24
WIDTH = 32


# --- a worker


@dataclass
class Job:
    """What the scheduler tells a worker."""

    attempt: int  # a number of its own for each group, so that none reads the keys of another
    rank: int
    size: int
    folder: str  # of checkpoints
    checkpoint: str | None = None  # to begin with
    dies_in: int | None = None  # step


def work(scheduler: Connection, machine: str, port: int) -> None:
    os.environ["FAIRRING_MACHINE"] = machine  # two workers share memory, others speak TCP
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)  # the scheduler's, which outlives every rank
    while (job := scheduler.recv()) is not None:
        named = dist.PrefixStore(f"attempt {job.attempt}", store)
        dist.init_process_group("fairring", store=named, rank=job.rank, world_size=job.size)
        try:
            scheduler.send(("losses", train(job)))
        except dist.DistBackendError as error:
            scheduler.send(("failed", str(error)))
        dist.destroy_process_group()


def train(job: Job) -> dict[int, float]:
    """The losses by step."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (job.size,))
    model: Any = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = load(model, optimizer, job.checkpoint) if job.checkpoint else 0
    losses = {}
    for step in range(first, STEPS):
        if step % SAVE_EVERY == 0 and step > first:
            save(model, optimizer, step, Path(job.folder, f"step-{step}"))
        inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))[job.rank :: job.size]
        loss = functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True) / WIDTH)
        if step == job.dies_in:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses[step] = mean.item()
    return losses


def save(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, folder: Path) -> None:
    """Every rank writes its shards; the file .metadata comes last, so a checkpoint that was cut off lacks it."""
    parameters, moments = get_state_dict(model, optimizer)
    dcp.save({"model": parameters, "optimizer": moments, "step": step}, checkpoint_id=folder)


def load(model: nn.Module, optimizer: torch.optim.Optimizer, folder: str) -> int:
    """Each rank reads the parts that are its own now, whoever wrote them. Returns the next step."""
    parameters, moments = get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": parameters, "optimizer": moments, "step": 0}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=parameters, optim_state_dict=moments)
    return int(state["step"])


# --- the scheduler


class Worker:
    def __init__(self, number: int, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        machine = f"machine {number // 2}"
        self.process = context.Process(target=work, args=(there, machine, port), daemon=True)
        self.process.start()
        there.close()

    def end(self) -> None:
        self.pipe.send(None)
        self.process.join()


def last_checkpoint(folder: str) -> str:
    whole = [path.parent for path in Path(folder).glob("step-*/.metadata")]
    return str(max(whole, key=lambda path: int(path.name.removeprefix("step-"))))


def told(workers: list[Worker], attempt: int, folder: str, checkpoint: str) -> dict[int, float]:
    """The losses of these workers from that checkpoint on."""
    for rank, worker in enumerate(workers):
        worker.pipe.send(Job(attempt, rank, len(workers), folder, checkpoint))
    answers = [worker.pipe.recv() for worker in workers]
    assert all(answer == answers[0] and answer[0] == "losses" for answer in answers), answers
    losses: dict[int, float] = answers[0][1]
    return losses


def main() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other_folder:
        workers = [Worker(number, store.port) for number in range(4)]
        for rank, worker in enumerate(workers):
            worker.pipe.send(Job(1, rank, 4, folder, dies_in=DEATH if rank in DEAD else None))
        survivors = [worker for rank, worker in enumerate(workers) if rank not in DEAD]
        for worker in survivors:
            word, said = worker.pipe.recv()
            assert word == "failed", said
            print(f"a survivor: {said}")
        checkpoint = last_checkpoint(folder)
        print(f"{len(survivors)} survivors load {Path(checkpoint).name}")
        found = told(survivors, 2, folder, checkpoint)
        fresh = [Worker(number, store.port) for number in range(2)]
        expected = told(fresh, 3, other_folder, checkpoint)
        for step, loss in found.items():
            print(f"step {step}: loss {loss:.6f}")
        print(f"the losses of two fresh ranks from the same checkpoint are equal: {found == expected}")
        for worker in (*survivors, *fresh):
            worker.end()
    sys.exit(found != expected)


if __name__ == "__main__":
    main()
