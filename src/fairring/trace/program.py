"""The place where this process's main thread stands, whatever it is doing."""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_SHOWN = 3


def where() -> str:
    """The innermost lines of the program itself, the first one first: "train.py:57 in step, train.py:90 in main"."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    own = [line for line in _lines(frame) if line]
    return ", ".join(own[:_SHOWN])


def _lines(frame: FrameType | None) -> Iterator[str]:
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    libraries.add(str(Path(__file__).parents[1]))
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(("<", *libraries)):
            yield f"{Path(path).name}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
