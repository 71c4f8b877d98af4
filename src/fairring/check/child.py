"""Python processes with a time limit: an import that crashes or hangs ends such a process and not the command."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fairring

PACKAGES = Path(fairring.__file__).parent.parent  # where the children find this same package too
MOST_LINES = 4
# For a process that imports torch. That takes seconds, but minutes on a busy machine or from a slow disk.
START_SECONDS = 300.0


@dataclass(frozen=True)
class Ended:
    """How a process ended. found: its result; None: it has none. error: the reason, empty if it ended well.

    late: it had not ended in time, which says nothing against what it did.
    """

    found: Any
    error: str
    late: bool = False


def run(arguments: Sequence[str], environment: Mapping[str, str], seconds: float) -> Ended:
    """Runs Python with these arguments. Its result is the last line of stdout, as JSON."""
    path = f"{PACKAGES}:{environment.get('PYTHONPATH', '')}".rstrip(":")
    command = [sys.executable, *arguments]
    try:
        done = subprocess.run(
            command,
            env={**environment, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = _last_words(late.stderr.decode(errors="replace") if isinstance(late.stderr, bytes) else late.stderr)
        return Ended(None, f"did not end within {seconds:g} s" + (f"; it said: {said}" if said else ""), late=True)
    except OSError as error:
        return Ended(None, f"could not be started: {error}")
    if done.returncode:
        return Ended(None, _why(done.returncode, done.stderr))
    try:
        return Ended(json.loads(done.stdout.splitlines()[-1]), "")
    except (IndexError, ValueError):
        return Ended(None, f"gave no result; it said: {_last_words(done.stdout + done.stderr)}")


def _why(code: int, stderr: str) -> str:
    said = _last_words(stderr)
    if code > 0:
        return said or f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was killed by {name}" + (f"; it said: {said}" if said else "")


def _last_words(text: str | None) -> str:
    """The error at the end of a traceback, or the last lines."""
    plain = re.sub(r"^\[rank\d+\]: ?", "", text or "", flags=re.MULTILINE)  # torch writes this before each line
    plain = re.sub(r"^\[[IWE]\d{4} .*\n?", "", plain, flags=re.MULTILINE)  # torch's log
    _, _, behind = plain.rpartition("Traceback (most recent call last):")
    lines = [line.strip() for line in behind.splitlines() if line.strip() and not line.startswith(" ")]
    return " / ".join(lines[:MOST_LINES] if behind != plain else lines[-MOST_LINES:])
