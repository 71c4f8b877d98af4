"""When the remaining ranks are made to end: by TERM after the grace period, and soon after that by KILL.

A clock's reading goes in and signals come out; it neither waits nor sends. The grace period lets the other ranks of a
failed one come to their own errors, which say more than a death by TERM.
"""

from __future__ import annotations

import signal

_SECONDS_TO_KILL = 5.0


class Stopping:
    """grace: seconds."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._steps: list[tuple[float, signal.Signals]] = []
        self._begun = False
        self._interrupted = False

    def begin(self, now: float) -> None:
        """A rank failed, or the lab was asked to end. Only the first call counts."""
        if not self._begun:
            self._begun = True
            term = now + self._grace
            self._steps = [
                (term, signal.SIGTERM),
                (term + _SECONDS_TO_KILL, signal.SIGKILL),
            ]

    def translate(self, signum: int, now: float) -> int:
        """The signal to pass on for one that the lab got: the second INT becomes a KILL."""
        self.begin(now)
        again = signum == signal.SIGINT and self._interrupted
        self._interrupted = self._interrupted or signum == signal.SIGINT
        return signal.SIGKILL if again else signum

    @property
    def next_time(self) -> float | None:
        return self._steps[0][0] if self._steps else None

    def take_due(self, now: float) -> list[signal.Signals]:
        """The signals whose time has come, each once."""
        due = [signum for when, signum in self._steps if when <= now]
        del self._steps[: len(due)]
        return due
