"""The long way between the sites of a lab: frames from one site's tap go into another's after the delay.

A process of its own, for the kernel may have nothing that delays packets. It learns who stands where as a switch does.
Rates are the kernel's work, on the way to the taps. Frames come and go with their virtio header, so up to 64 KiB of a
stream pass as one and cost as much as one. Standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from fairring.lab import namespaces

_HEADER = 10  # bytes of virtio_net_hdr before each frame
_LONGEST = _HEADER + 14 + 65536
_MOST_AT_ONCE = 64  # frames of a tap, before others get their turn
_URGENT = -10  # of the processor: a forwarder that waits for the processor delays frames too much


def main(arguments: Sequence[str]) -> int:
    """arguments: the process to die with, the delay in seconds, and of each trunk its taps' descriptors: 5,6."""
    namespaces.die_with_parent(signal.SIGKILL)
    if os.getppid() != int(arguments[0]):
        return 0
    with suppress(OSError):  # not without privileges
        os.setpriority(os.PRIO_PROCESS, 0, _URGENT)
    trunks = [Trunk([int(tap) for tap in taps.split(",")]) for taps in arguments[2:]]
    forward(trunks, float(arguments[1]))
    return 0


class Trunk:
    """The taps of one network, one for each site; they do not block."""

    def __init__(self, taps: Sequence[int]) -> None:
        self.taps = list(taps)
        self._homes: dict[bytes, int] = {}  # by address, the tap behind which it stands

    def targets(self, source: int, frame: bytes) -> list[int]:
        """The taps that the frame goes to: all others if its address is unknown."""
        to, origin = frame[_HEADER : _HEADER + 6], frame[_HEADER + 6 : _HEADER + 12]
        self._homes[origin] = source
        home = self._homes.get(to)
        if home is None:
            return [tap for tap in self.taps if tap != source]
        return [] if home == source else [home]


def forward(trunks: Sequence[Trunk], delay: float) -> None:
    """Runs for ever. The delay is the same for all frames, so they are due in the order in which they came."""
    trunk_of = {tap: trunk for trunk in trunks for tap in trunk.taps}
    waiting: deque[tuple[float, list[int], bytes]] = deque()
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select(list(trunk_of), [], [], timeout)
        for tap in ready:
            for frame in _read(tap):
                waiting.append((time.monotonic() + delay, trunk_of[tap].targets(tap, frame), frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, targets, frame = waiting.popleft()
            for tap in targets:
                with suppress(OSError):  # as a cable that has been pulled: the frame is lost
                    os.write(tap, frame)


def _read(tap: int) -> list[bytes]:
    frames: list[bytes] = []
    with suppress(BlockingIOError):
        while len(frames) < _MOST_AT_ONCE:
            frames.append(os.read(tap, _LONGEST))
    return frames
