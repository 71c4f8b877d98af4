"""The cost of deaths in a training: the share of its steps that is left when a rank is killed every so often.

    python benchmarks/goodput.py --seconds 120 --every 60 --json goodput.json

Jobs of four ranks, on two machines of two in one host, take turns, without deaths and with a rank killed now and then:

- reconfigure: the others go on in their processes, a new rank starts and joins (docs/failures.md);
- torchrun restarts all ranks, which go on from a checkpoint (on gloo they find the first ranks' addresses in the
  store, and wait for them until their timeout);
- torchft on fairring, and on gloo, where torchft is installed: replicas of one rank. The time to join includes the
  start of the new replica there.

A step is a pause, in place of an accelerator's work, and an all-reduce. The ranks' summands depend only on the step, so
the parameters show which steps counted: `wrong` counts parameters that do not follow from the steps done. `goodput` is
the steps in the job's time over those of the job without deaths. The time begins with the first step and includes the
kills, the starts of new ranks, and repeated steps.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

RANKS = 4
TIMEOUT = timedelta(seconds=120)
c10d: Any = dist.distributed_c10d


@dataclass(frozen=True)
class Job:
    """pause: seconds of a step besides its all-reduce. elements: of it, Float32. checkpoint: every so many steps."""

    pause: float
    elements: int
    checkpoint: int


class Training:
    def __init__(self, job: Job) -> None:
        torch.set_num_threads(1)
        self.job = job
        self.parameters = torch.zeros(job.elements)
        self.done = 0

    def step(self) -> None:
        """One step; an error leaves the parameters as they were."""
        time.sleep(self.job.pause)
        gradients = torch.full((self.job.elements,), float(1 + self.done % 7))
        dist.all_reduce(gradients, op=dist.ReduceOp.AVG)
        self.parameters += gradients
        self.done += 1

    def wrong(self) -> int:
        """Parameters that do not follow from the steps done."""
        expected = sum(1 + step % 7 for step in range(self.done))
        return int((self.parameters != expected).sum())

    def catch_up(self) -> None:
        """With the member that has done the most steps."""
        done = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
        dist.all_gather(done, torch.tensor([self.done]))
        steps = [int(each) for each in done]
        self.done = max(steps)
        if min(steps) < self.done:
            dist.broadcast(self.parameters, steps.index(self.done))


# --- ranks that reconfigure


def member(scheduler: Connection, machine: str, job: Job) -> None:
    os.environ["FAIRRING_MACHINE"] = machine
    dist.init_process_group("fairring", store=dist.HashStore(), rank=0, world_size=1, enable_reconfigure=True)
    training = Training(job)
    scheduler.send(("handle", c10d._get_reconfigure_handle()))
    while (members := scheduler.recv()) is not None:
        try:
            c10d._reconfigure(*members, timeout=TIMEOUT).wait()
            training.catch_up()
            news = torch.zeros(1)
            while not news.item():
                training.step()
                scheduler.send(("step", training.done))
                news.fill_(scheduler.poll())
                dist.all_reduce(news, op=dist.ReduceOp.MAX)  # all go and listen in the same step
        except dist.DistBackendError:
            scheduler.send(("failed", training.done))
    scheduler.send(("wrong", training.wrong()))
    dist.destroy_process_group()


@dataclass
class Member:
    process: Any
    pipe: Connection
    handle: str = ""


@dataclass
class Figures:
    """seconds: of the whole; until the next step of all ranks, by kill and by join."""

    steps: int = 0
    seconds: float = 0.0
    kills: int = 0
    wrong: int = 0
    after_kill: list[float] = field(default_factory=list)
    after_join: list[float] = field(default_factory=list)


class Scheduler:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._context = multiprocessing.get_context("spawn")
        self._uuids = itertools.count(1)
        self._started = itertools.count()
        self._victims = itertools.count()
        self._steps = 0
        self.figures = Figures()

    def run(self, seconds: float, every: float) -> Figures:
        members = [self._start() for _ in range(RANKS)]
        for one in members:
            self._handle(one)
        self._join(members)
        began, first = time.monotonic(), self._steps
        next_kill = began + every
        while (now := time.monotonic()) < began + seconds:
            if now < next_kill:
                self._hear(members, min(next_kill, began + seconds))
                continue
            next_kill += every
            members = self._kill_and_go_on(members)
            members = self._replace(members)
        self.figures.seconds = time.monotonic() - began
        self.figures.steps = self._steps - first
        for one in members:
            one.pipe.send(None)
        self.figures.wrong = sum(self._until(one, "wrong")[1] for one in members)
        wait([one.process.sentinel for one in members])
        return self.figures

    def _start(self) -> Member:
        here, there = self._context.Pipe()
        machine = f"machine {next(self._started) * 2 // RANKS % 2}"
        process = self._context.Process(target=member, args=(there, machine, self._job), daemon=True)
        process.start()
        there.close()
        return Member(process, here)

    def _handle(self, one: Member) -> None:
        one.handle = self._until(one, "handle")[1]

    def _until(self, one: Member, *words: str) -> Any:
        while (message := one.pipe.recv())[0] not in words:
            self._count(message)
        return message

    def _count(self, message: Any) -> None:
        if message[0] == "step":
            self._steps = max(self._steps, message[1])

    def _hear(self, members: list[Member], until: float) -> None:
        ready = wait([one.pipe for one in members], max(0.0, until - time.monotonic()))
        for pipe in ready:
            assert isinstance(pipe, Connection)
            self._count(pipe.recv())

    def _join(self, members: list[Member]) -> float:
        """The seconds until all of these have done a step together."""
        began = time.monotonic()
        uuid, handles = next(self._uuids), [one.handle for one in members]
        for one in members:
            one.pipe.send((uuid, handles))
        least = self._steps
        for one in members:
            while True:
                message = self._until(one, "step")
                self._count(message)
                if message[1] > least + 1:  # of the new members, whatever was under way
                    break
        return time.monotonic() - began

    def _kill_and_go_on(self, members: list[Member]) -> list[Member]:
        victim = members[next(self._victims) % len(members)]
        began = time.monotonic()
        victim.process.kill()
        survivors = [one for one in members if one is not victim]
        for one in survivors:
            self._count(("step", self._until(one, "failed")[1]))
        self._join(survivors)
        self.figures.kills += 1
        self.figures.after_kill.append(time.monotonic() - began)
        return survivors

    def _replace(self, members: list[Member]) -> list[Member]:
        """The others train while the new rank starts."""
        one = self._start()
        while not one.pipe.poll():
            self._hear(members, time.monotonic() + 0.1)
        self._handle(one)
        self.figures.after_join.append(self._join([*members, one]))
        return [*members, one]


# --- ranks that torchrun restarts


def restarted(directory: Path, job: Job) -> None:
    rank = int(os.environ["LOCAL_RANK"])
    os.environ["FAIRRING_MACHINE"] = f"machine {rank * 2 // RANKS}"
    dist.init_process_group("fairring", timeout=TIMEOUT)
    training = Training(job)
    checkpoint, progress = directory / "checkpoint", directory / "progress"
    if checkpoint.exists():
        training.done, training.parameters = torch.load(checkpoint)
    (directory / f"pid{rank}").write_text(str(os.getpid()))
    while not (directory / "end").exists():
        training.step()
        if rank == 0:
            _replace_file(progress, f"{training.done} {training.wrong()}".encode())
            if training.done % job.checkpoint == 0:
                torch.save((training.done, training.parameters), directory / "new")
                (directory / "new").rename(checkpoint)
    os._exit(0)  # the ranks see the end in different steps


def _replace_file(path: Path, content: bytes) -> None:
    partial = path.with_suffix(".part")
    partial.write_bytes(content)
    partial.rename(path)


def torchrun(job: Job, seconds: float, every: float) -> Figures:
    figures = Figures()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        words = ["--restarted", name, "--pause", job.pause, "--checkpoint", job.checkpoint]
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", RANKS, "--max-restarts", 1000]
        command += ["--monitor-interval", 0.1, __file__, *words, "--elements", job.elements]
        with (directory / "log").open("w") as log:
            process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
        first = _await_progress(directory, process, 1)
        began = time.monotonic()
        victims = itertools.count()
        for kill in itertools.count(1):
            if kill * every >= seconds:
                break
            time.sleep(max(0.0, began + kill * every - time.monotonic()))
            killed = time.monotonic()
            os.kill(int((directory / f"pid{next(victims) % RANKS}").read_text()), 9)
            # Nobody starts in less than a second: what follows is of the ranks that were started again.
            reached = _progress(directory)
            _await_progress(directory, process, reached + 1)
            figures.kills += 1
            figures.after_kill.append(time.monotonic() - killed)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        figures.seconds = time.monotonic() - began
        figures.steps = _progress(directory) - first
        figures.wrong = int((directory / "progress").read_text().split()[1])
        (directory / "end").touch()
        process.terminate()
        process.wait()
    return figures


def _progress(directory: Path) -> int:
    path = directory / "progress"
    return int(path.read_text().split()[0]) if path.exists() else 0


def _await_progress(directory: Path, process: subprocess.Popen[Any], steps: int) -> int:
    while (done := _progress(directory)) < steps:
        if process.poll() is not None:
            raise RuntimeError((directory / "log").read_text())
        time.sleep(0.01)
    return done


# --- the table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each job (%(default)s)")
    parser.add_argument("--every", type=float, default=60.0, help="seconds from kill to kill (%(default)s)")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds of a step's computing (%(default)s)")
    parser.add_argument("--elements", type=int, default=1 << 20, help="Float32 in an all-reduce (%(default)s)")
    parser.add_argument("--checkpoint", type=int, default=20, help="steps between checkpoints (%(default)s)")
    parser.add_argument("--jobs", help="of the four, for instance reconfigure,torchrun restarts")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--restarted", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    job = Job(options.pause, options.elements, options.checkpoint)
    if options.restarted:
        restarted(options.restarted, job)
        return
    runs: dict[str, Callable[[float], Figures]] = {
        "reconfigure": lambda every: Scheduler(job).run(options.seconds, every),
        "torchrun restarts": lambda every: torchrun(job, options.seconds, every),
    }
    if find_spec("torchft"):
        from goodput_torchft import Replicas

        runs["torchft on fairring"] = lambda every: Replicas(job, "fairring").run(options.seconds, every)
        runs["torchft on gloo"] = lambda every: Replicas(job, "gloo").run(options.seconds, every)
    table = Table("job", "steps", "seconds", "kills", "goodput", "s to the next step", "s to join", "wrong")
    figures: dict[str, Figures] = {}
    for name in options.jobs.split(",") if options.jobs else runs:
        # torchrun's ranks train as those that reconfigure, until one is killed.
        usual = "reconfigure" if name == "torchrun restarts" else name
        unharmed = f"{usual}, nobody is killed"
        figures[unharmed] = figures.get(unharmed) or runs[usual](float("inf"))
        figures[name] = runs[name](options.every)
        for row in dict.fromkeys((unharmed, name)):
            one, per_second = figures[row], figures[unharmed].steps / figures[unharmed].seconds
            times = [f"{statistics.median(all_):.2f}" if all_ else "-" for all_ in (one.after_kill, one.after_join)]
            goodput = f"{one.steps / one.seconds / per_second:.3f}"
            table.add_row(row, str(one.steps), f"{one.seconds:.1f}", str(one.kills), goodput, *times, str(one.wrong))
    Console(width=120).print(table)
    if options.json:
        options.json.write_text(json.dumps({name: vars(one) for name, one in figures.items()}, indent=1))


if __name__ == "__main__":
    main()
