"""The output of the ranks: kept for the lab's result, and printed line by line with the rank in front.

Bytes in, bytes out; used from one thread. Only whole lines are printed: half a line waits for its end, so the lines of
two ranks never mix. If a line was overwritten with carriage returns (a progress bar), only its last state is printed.
"""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

# A line longer than this is printed in pieces, so that a rank that never ends one can't fill the memory.
_LONGEST_LINE = 1 << 20
_COLOURS = (36, 32, 33, 35, 34, 31)


class Record:
    """The output of one stream. keep: how many of its last bytes are kept, None for all."""

    def __init__(self, keep: int | None) -> None:
        self._keep = keep
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self._data += data
        # Cut rarely: every cut moves the kept bytes.
        if self._keep is not None and len(self._data) > 2 * self._keep:
            del self._data[: -self._keep]

    @property
    def text(self) -> str:
        return self._data.decode(errors="replace")


class Lines:
    """Cuts a stream into lines without their ends."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, data: bytes) -> list[bytes]:
        """Returns the lines that this completes."""
        *lines, rest = (self._rest + data).split(b"\n")
        # Up to the last carriage return but one a progress bar's states are history; the last may be half of CR LF.
        self._rest = rest[max(rest.rfind(b"\r", 0, len(rest) - 1), 0) :]
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        return [_last_drawing(line) for line in lines]

    def end(self) -> list[bytes]:
        """Returns the text after the last line's end."""
        rest, self._rest = self._rest, b""
        return [_last_drawing(rest)] if rest else []


class Printer:
    """Prints the lines of every rank to the lab's own stdout and stderr."""

    def __init__(self) -> None:
        self._targets: dict[str, BinaryIO] = {
            "stdout": sys.stdout.buffer,
            "stderr": sys.stderr.buffer,
        }
        plain = "NO_COLOR" in os.environ
        self._coloured = {name: target.isatty() and not plain for name, target in self._targets.items()}
        self._lines: dict[tuple[int, str], Lines] = {}

    def add(self, rank: int, stream: str, data: bytes) -> None:
        """data: empty at the stream's end. Raises BrokenPipeError if the reader of the lab's output has gone."""
        lines = self._lines.setdefault((rank, stream), Lines())
        done = lines.add(data) if data else lines.end()
        if done:
            prefix = self._prefix(rank, stream)
            self._targets[stream].write(b"".join(prefix + line + b"\n" for line in done))
            self._targets[stream].flush()

    def say(self, text: str) -> None:
        """Prints a message of the lab itself."""
        self._targets["stderr"].write(f"fairring lab: {text}\n".encode())
        self._targets["stderr"].flush()

    def _prefix(self, rank: int, stream: str) -> bytes:
        plain = f"[rank {rank}] "
        if self._coloured[stream]:
            plain = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m[rank {rank}]\x1b[0m "
        return plain.encode()


def _last_drawing(line: bytes) -> bytes:
    return line.rstrip(b"\r").rsplit(b"\r", 1)[-1]
