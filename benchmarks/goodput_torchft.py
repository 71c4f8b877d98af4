"""The job of goodput.py under torchft: replicas of one rank each, over Fairring's group or torchft's Gloo group."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist
from goodput import RANKS, Figures, Job, Training

TIMEOUT = timedelta(seconds=30)
# How long torchft waits for a replica that is missing, and until it takes one for dead that gives no sign of life.
JOIN_MS, HEARTBEAT_MS = 1000, 1000


def replica(lighthouse: str, name: str, backend: str, job: Job, parent: Connection) -> None:
    os.environ["TORCHFT_LIGHTHOUSE"] = lighthouse
    os.environ["FAIRRING_MACHINE"] = f"machine {int(name) * 2 // RANKS % 2}"
    import torchft
    from torchft.process_group import ProcessGroupGloo

    from fairring.torchft import ProcessGroupFairring

    training = Training(job)

    def load(state: tuple[int, torch.Tensor]) -> None:
        training.done, training.parameters = state

    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    group = {"gloo": ProcessGroupGloo, "fairring": ProcessGroupFairring}[backend](timeout=TIMEOUT)
    # init_sync: all begin alike. With it torchft counts who copies the first state as one that gave gradients.
    manager = torchft.Manager(
        pg=group, min_replica_size=1, timeout=TIMEOUT, replica_id=name, load_state_dict=load, store_addr="localhost",
        store_port=store.port, rank=0, world_size=1, state_dict=lambda: (training.done, training.parameters),
        init_sync=False,
    )  # fmt: skip
    while not parent.poll():
        manager.start_quorum()
        time.sleep(job.pause)
        gradients = torch.full((job.elements,), float(1 + manager.current_step() % 7))
        manager.allreduce(gradients).wait()
        if manager.should_commit():
            training.parameters += gradients
            training.done += 1
            parent.send(("step", training.done))
    parent.send(("wrong", training.wrong()))
    os._exit(0)  # the replicas hear of the end in different steps


class Replicas:
    """backend: "fairring" or "gloo"."""

    def __init__(self, job: Job, backend: str) -> None:
        from torchft.coordination import LighthouseServer

        self._lighthouse = LighthouseServer(
            bind="[::]:0", min_replicas=1, join_timeout_ms=JOIN_MS, heartbeat_timeout_ms=HEARTBEAT_MS
        )
        self._job, self._backend = job, backend
        self._context = multiprocessing.get_context("spawn")
        self._started = itertools.count()
        self._processes: dict[Connection, Any] = {}
        self._steps = 0

    def run(self, seconds: float, every: float) -> Figures:
        figures = Figures()
        for _ in range(RANKS):
            self._start()
        self._train(set(self._processes))
        began, first = time.monotonic(), self._steps
        kill = began + every
        while (now := time.monotonic()) < began + seconds:
            if now < kill:
                self._hear(min(kill, began + seconds) - now)
                continue
            kill += every
            figures.kills += 1
            figures.after_kill.append(self._kill_and_go_on())
            figures.after_join.append(self._train({self._start()}))
        figures.seconds, figures.steps = time.monotonic() - began, self._steps - first
        figures.wrong = self._end()
        return figures

    def _start(self) -> Connection:
        here, there = self._context.Pipe()
        arguments = (self._lighthouse.address(), str(next(self._started)), self._backend, self._job, there)
        process = self._context.Process(target=replica, args=arguments, daemon=True)
        process.start()
        there.close()
        self._processes[here] = process
        return here

    def _hear(self, seconds: float | None) -> set[Connection]:
        """Those who have done steps meanwhile."""
        heard: set[Connection] = set()
        for pipe in wait(list(self._processes), seconds):
            assert isinstance(pipe, Connection)
            self._steps = max(self._steps, pipe.recv()[1])
            heard.add(pipe)
        return heard

    def _train(self, awaited: set[Connection]) -> float:
        """The seconds until all of these have done a step."""
        began = time.monotonic()
        while awaited:
            awaited = awaited - self._hear(None)
        return time.monotonic() - began

    def _kill_and_go_on(self) -> float:
        pipe = next(iter(self._processes))
        victim = self._processes.pop(pipe)
        while self._hear(0):  # what was done before
            pass
        began = time.monotonic()
        victim.kill()
        victim.join()
        self._train(set(self._processes))
        return time.monotonic() - began

    def _end(self) -> int:
        for pipe in self._processes:
            pipe.send("end")
        wrong = 0
        for pipe, process in self._processes.items():
            while (message := pipe.recv())[0] != "wrong":
                pass
            wrong += message[1]
            process.join()
        self._lighthouse.shutdown()
        return wrong
