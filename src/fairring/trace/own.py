"""The explanation that this process's rank can give by its own trace, without any other rank's."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from fairring import _core
from fairring.trace.files import parse
from fairring.trace.records import TraceError
from fairring.trace.words import explain


def explain_own(group: dist.ProcessGroup | None, last: int | None) -> str:
    """The answer of fairring.why(); the last line says who has the calls on CUDA tensors, if there were any."""
    way = _core.device_way(_backend_of(group)) or ""
    try:
        mine = parse(_text(group, last + 1 if last else sys.maxsize))
        return explain([replace(mine, device_way=way)], last)
    except (TraceError, ValueError) as error:
        if not way:
            raise ValueError(str(error)) from error
        return f"{error}\n{way}"  # all calls so far may be NCCL's, which are not recorded


def save_own(directory: Path, group: dist.ProcessGroup | None) -> Path:
    """The work of fairring.save_trace()."""
    text = _text(group, sys.maxsize)
    one = parse(text)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{one.group.replace('/', '_')}-rank{one.rank}.json"
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # a reader sees all of it, or the one before
    try:
        part.write_text(text)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return path


def _text(group: dist.ProcessGroup | None, calls: int) -> str:
    text = _core.trace(_backend_of(group), calls)
    if text is None:
        raise ValueError("only groups of the backend fairring record what they wait for")
    if not text:
        raise ValueError("this group has made no call with another rank yet, so there is nothing to tell")
    return text


def _backend_of(group: dist.ProcessGroup | None) -> Any:
    return (group or dist.group.WORLD)._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
