"""Captures this process's standard error, C++ included."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def standard_error() -> Iterator[list[str]]:
    """Yields a list that holds the lines at the end."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lines")
        before = os.dup(2)
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, 2)
        try:
            yield lines
        finally:
            os.dup2(before, 2)
            os.close(before)
            os.close(file)
            lines += path.read_text().splitlines()
