"""Counts the traffic of a rank at each level, to show the cost of a program's calls.

    from fairring.traffic import counting, traffic
    with counting() as moved:
        optimizer_step()
    print(moved)  # {'machine': Moved(messages=..., bytes=..., sends=...), 'rail': ...}

Small messages that wait for the same peer go out together: `messages` counts them before that, `sends` after. Counting
costs nothing, because Fairring counts anyway. Under torch's profiler each stretch leaves an event in the trace, whose
name gives the traffic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass

import torch
import torch.distributed as dist

from fairring import _core
from fairring.by_level import level_names


@dataclass(frozen=True)
class Moved:
    """The traffic of one rank at one level: reads from its peers' memory within the machine, sends above that."""

    messages: int = 0
    bytes: int = 0
    sends: int = 0  # each carries one message or several; 0 within the machine, where nothing is sent
    # The magnitudes of a sample of the elements that this rank contributed in a format (fairring.between_sites), and
    # those of what rounding took from them.
    rounded: float = 0.0
    lost: float = 0.0

    @property
    def mean_error(self) -> float:
        """The part that rounding took: 0.01 is 1 %. Residuals bring it back in the next call. 0.0: none was sent."""
        return self.lost / self.rounded if self.rounded else 0.0

    def __sub__(self, other: Moved) -> Moved:
        return Moved(*(mine - its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        sends = f" in {self.sends} sends" if self.sends else ""
        error = f", mean error {self.mean_error:.2%}" if self.rounded else ""
        return f"{self.messages} messages{sends}, {self.bytes} bytes{error}"


def traffic(group: dist.ProcessGroup | None = None) -> dict[str, Moved]:
    """The traffic of this rank since the group was made, by level: machine, rail, and site or groups (of machines).

    group: one of Fairring's; the default group if none is given. Raises ValueError if it is another backend's. The
    result is empty before the group's first call, and in a group of one rank. Calls that NCCL carries out are not
    counted.
    """
    backend = (group or dist.group.WORLD)._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    counted = _core.traffic(backend)
    if counted is None:
        raise ValueError("only groups of the backend fairring count what they move")
    names = level_names(1)
    if names.index("groups") in counted:
        seen = _core.inspect(backend) or {"ranks": []}
        names = level_names(len({rank["site"] for rank in seen["ranks"]}))
    return {names[level]: Moved(**counted[level]) for level in sorted(counted)}


@contextmanager
def counting(group: dist.ProcessGroup | None = None) -> Iterator[dict[str, Moved]]:
    """Counts this rank's traffic within the block; the dictionary is filled when the block ends.

    Data of its calls that peers still fetch may be counted later. Raises as traffic() does.
    """
    before = traffic(group)
    moved: dict[str, Moved] = {}
    yield moved
    moved |= {level: now - before.get(level, Moved()) for level, now in traffic(group).items()}
    with torch.profiler.record_function(f"fairring:moved {'; '.join(f'{level}: {moved[level]}' for level in moved)}"):
        pass
