"""Captures this process's standard error, C++ included."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch


@contextmanager
def standard_error(info: bool = False) -> Iterator[list[str]]:
    """Yields a list that holds the lines at the end. info: what C++ logs at that level too, from now on."""
    if info:
        show_infos()
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


def show_infos() -> None:
    """As TORCH_CPP_LOG_LEVEL=INFO, which torch reads when it is imported."""
    c10 = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    ctypes.c_int.in_dll(c10, "FLAGS_caffe2_log_level").value = 0
