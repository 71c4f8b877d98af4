"""What this process's own rank knows, without any other's trace."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

from fairring import _core
from fairring.trace.records import TraceError, parse
from fairring.trace.words import explain


def explain_own(group: dist.ProcessGroup | None, last: int | None) -> str:
    """As fairring.why() has it."""
    backend = (group or dist.group.WORLD)._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    text = _core.trace(backend, last + 1 if last else sys.maxsize)
    if text is None:
        raise ValueError("only groups of the backend fairring record what they wait for")
    if not text:
        raise ValueError("this group has made no call with another rank yet, so there is nothing to tell")
    try:
        return explain([parse(text)], last)
    except TraceError as error:
        raise ValueError(str(error)) from error
