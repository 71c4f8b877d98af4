"""A rank in a case: it runs one of the bodies, and tells the stage what happened and what it left behind."""

from __future__ import annotations

import gc
import importlib
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from every_call import CALLS, EveryCall, is_right

from failures import holdings


class OwnError(Exception):
    """Raised by a body that stands for a user's bug: it ends the process as a bug would."""


@dataclass
class Rank:
    """A rank as its body sees it. timeout: of the group, seconds."""

    stage: Connection
    number: int
    size: int
    timeout: float

    def say(self, *words: Any) -> None:
        self.stage.send((*words, time.monotonic()))

    def hear(self, word: str) -> None:
        heard = self.stage.recv()
        assert heard == word, f"rank {self.number} was told {heard!r} and not {word!r}"

    def init(self, **options: Any) -> None:
        dist.init_process_group(
            "fairring", rank=self.number, world_size=self.size, timeout=timedelta(seconds=self.timeout), **options
        )

    def join(self) -> None:
        """The group, warmed up by a sum; returns when all ranks have come so far."""
        self.init()
        self.sum_right(1000)
        self.say("ready")
        self.hear("go")

    def sum_right(self, elements: int) -> None:
        tensor = torch.full((elements,), float(self.number))
        dist.all_reduce(tensor)
        expected = self.size * (self.size - 1) / 2
        if not bool((tensor == expected).all()):
            raise AssertionError(f"rank {self.number}: a sum of {tensor[0]} instead of {expected}")

    def make_every_call(self, elements: int) -> None:
        """Raises where a result is wrong."""
        me, size = self.number, self.size
        calls = EveryCall(shape=(1, elements))
        for name in CALLS:
            if not is_right(calls, name):
                raise AssertionError(f"rank {me}: {name} brought another result")
        names: list[object] = [None] * size
        dist.all_gather_object(names, f"rank {me}")
        if names != [f"rank {other}" for other in range(size)]:
            raise AssertionError(f"rank {me}: all_gather_object brought {names}")


def live(stage: Connection, module: str, body: str, number: int, size: int, timeout: float) -> None:
    rank = Rank(stage, number, size, timeout)
    dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # the first one leaves a pipe behind
    before = holdings.take()
    try:
        getattr(importlib.import_module(module), body)(rank)
        rank.say("passed", None)
    except OwnError:
        rank.say("raised", "OwnError", "")
        raise
    except Exception as error:
        rank.say("raised", type(error).__name__, str(error))
    began = time.monotonic()
    if dist.is_initialized():
        dist.destroy_process_group()
    seconds = time.monotonic() - began
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":  # of a DataLoader, which closes its queues and does not wait for them
            thread.join()
    rank.say("left", holdings.take().beyond(before), seconds)
