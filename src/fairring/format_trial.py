"""The trial by which the gradients' format between sites is chosen where a program says "auto" (between_sites.py)."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist

FORMATS = (None, "bf16", "int8", "int4")  # the least lossy first
_ROUNDS = 4  # the first does not count: connections, buckets and residuals are made in it
_AS_FAST = 1.1  # times the fastest format's seconds, which vary by as much

_log = logging.getLogger("fairring")


def least_lossy(seconds: Sequence[float]) -> int:
    """The number of the least lossy format whose steps are as fast as the fastest one's, but for a tenth."""
    return next(number for number, took in enumerate(seconds) if took <= _AS_FAST * min(seconds))


class FormatTrial:
    """The formats take turns, a step each; then all ranks choose by the slowest rank's medians.

    All ranks make it at once, and call begin_step() at once.
    """

    def __init__(self, group: dist.ProcessGroup | None, kept: Mapping[str, str | None] | None) -> None:
        """kept: the state of a checkpoint's trial; its choice counts if all ranks have the same."""
        self._group: Any = group or dist.group.WORLD
        self._began: list[float] = []
        name = kept["format"] if kept else "none was chosen"
        number = FORMATS.index(name) if name in FORMATS else -1
        most, least = self._greatest([number, -number])
        self._chosen: int | None = number if most == -least and number >= 0 else None

    def begin_step(self, device: torch.device) -> None:
        """When the first gradients of a step are there: the wait for those of the step before is over.

        device: theirs. The host waits for it, which is ahead of it otherwise, until the formats have had their turns.
        """
        if self._chosen is not None:
            return
        if device.type != "cpu":
            torch.accelerator.current_stream(device).synchronize()
        self._began.append(time.monotonic())
        if len(self._began) <= _ROUNDS * len(FORMATS):
            return
        took = [end - begin for begin, end in pairwise(self._began)]
        of_formats = (took[number + len(FORMATS) :: len(FORMATS)] for number in range(len(FORMATS)))
        seconds = self._greatest([statistics.median(its) for its in of_formats])
        self._chosen = least_lossy(seconds)
        if self._group.rank() == 0:
            said = ", ".join(f"{form or 'as they are'} {its:.3g}" for form, its in zip(FORMATS, seconds, strict=True))
            _log.warning(
                "gradients cross between sites %s from now on: the least lossy way that is as fast as any, but for a "
                "tenth. Seconds of a step: %s",
                f"as {self.format}" if self.format else "as they are",
                said,
            )

    @property
    def format(self) -> str | None:
        """The format of the step that has begun."""
        return FORMATS[(len(self._began) - 1) % len(FORMATS) if self._chosen is None else self._chosen]

    @property
    def state(self) -> dict[str, str | None] | None:
        """The choice, for a checkpoint; None: the trial goes on."""
        return None if self._chosen is None else {"format": FORMATS[self._chosen]}

    def _greatest(self, values: list[float]) -> list[float]:
        """The greatest of all ranks' values, the same on all of them."""
        of_all = torch.tensor(values, dtype=torch.float64, device="cpu")
        dist.all_reduce(of_all, dist.ReduceOp.MAX, group=self._group)
        greatest: list[float] = of_all.tolist()
        return greatest
