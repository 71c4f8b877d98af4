"""Trains a small model by DDP in a group for each run, with the run's trouble planted; FAIRRING_TRACE gets the traces.

Argument: the runs, as JSON: a list of objects with the fields of Run. Prints a line for each: its group's name.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LAYERS = 4
BURN = "while True: pass"


@dataclass
class Run:
    """pause: seconds that each layer's backward takes; slow: those ranks take slow_pause instead.

    crowded: ranks that take the pause in time of a core, and share that core with busy processes.
    """

    steps: int = 12
    width: int = 512  # a layer has its square of parameters
    pause: float = 0.005
    slow: list[int] = field(default_factory=list)
    slow_pause: float = 0.02
    crowded: list[int] = field(default_factory=list)
    busy: int = 3


def rest(seconds: float) -> None:
    """What a longer computation, or a slower processor, looks like to the others."""
    time.sleep(seconds)


def compute(seconds: float) -> None:
    began = time.thread_time()
    while time.thread_time() < began + seconds:
        pass


class Pause(torch.autograd.Function):
    """A layer whose backward takes a while."""

    @staticmethod
    def forward(ctx, values, pause):
        ctx.pause = pause
        return values.view_as(values)

    @staticmethod
    def backward(ctx, gradient):
        ctx.pause()
        return gradient, None


class Net(nn.Module):
    def __init__(self, width: int, pause: Callable[[], None]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(LAYERS))
        self.pause = pause

    def forward(self, values):
        for layer in self.layers:
            values = Pause.apply(layer(values), self.pause)
        return values


def pin(cores: set[int]) -> None:
    """Lets all threads of this process run on these cores alone."""
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread.name), cores)


def play(run: Run, rank: int) -> None:
    group = dist.new_group()
    assert isinstance(group, dist.ProcessGroup)
    crowd = []
    cores = os.sched_getaffinity(0)
    if rank in run.crowded:
        pin({max(cores)})
        crowd = [subprocess.Popen([sys.executable, "-I", "-S", "-c", BURN]) for _ in range(run.busy)]
    seconds = run.slow_pause if rank in run.slow else run.pause
    net = Net(run.width, partial(compute if crowd else rest, seconds))
    model = DistributedDataParallel(net, process_group=group, bucket_cap_mb=run.width * run.width * 4 / 2**20)
    for _ in range(run.steps):
        model(torch.ones(2, run.width)).sum().backward()
    for one in crowd:
        one.kill()
        one.wait()
    if crowd:
        pin(cores)
    print(json.dumps({"group": group.group_name}), flush=True)
    dist.destroy_process_group(group)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("fairring")
    for run in json.loads(sys.argv[1]):
        play(Run(**run), dist.get_rank())
    dist.destroy_process_group()


main()
