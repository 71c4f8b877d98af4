"""A child that the lab attends to: its output is read as it comes and its end is noticed, through one selector.

Owned by the lab, used from its thread.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from functools import partial

from fairring.lab.child import Child
from fairring.lab.output import Record

_READ_SIZE = 1 << 16
# More than a pipe holds: the lab does not wait for the output of an escaped grandchild.
_MOST_READS_AFTER_END = 32


class Task:
    """keep: bytes of output remembered per stream, None for all. on_data(stream, data): data is empty at its end."""

    def __init__(
        self,
        child: Child,
        selector: selectors.BaseSelector,
        on_data: Callable[[str, bytes], None],
        keep: int | None,
    ) -> None:
        self.child = child
        self.records = {"stdout": Record(keep), "stderr": Record(keep)}
        self._selector = selector
        self._on_data = on_data
        for stream, pipe in child.pipes.items():
            selector.register(pipe, selectors.EVENT_READ, partial(self._read, stream))

    def finish(self) -> int:
        """Called when the child has ended or must end: reads the rest of its pipes. Returns its exit code."""
        code = self.child.reap()
        for stream in list(self.child.pipes):
            for _ in range(_MOST_READS_AFTER_END):
                if not self._read(stream):
                    break
            self._close(stream)
        return code

    def _read(self, stream: str) -> bool:
        """Returns whether there was something."""
        pipe = self.child.pipes.get(stream)
        if pipe is None:
            return False
        data = pipe.read(_READ_SIZE)
        if data:
            self.records[stream].add(data)
            self._on_data(stream, data)
        elif data is not None:
            self._close(stream)
        return bool(data)

    def _close(self, stream: str) -> None:
        pipe = self.child.pipes.pop(stream, None)
        if pipe is not None:
            self._selector.unregister(pipe)
            pipe.close()
            self._on_data(stream, b"")
