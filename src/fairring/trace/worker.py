"""Each rank's answer to PyTorch's debug server (page.py), on one of that server's threads.

The rank answers even while its main thread is stuck in a call. torch 2.15 brings the server; older versions have only
its handlers, if those.
"""

from __future__ import annotations

import ctypes
import json
from functools import cache
from typing import Any

from fairring import _core
from fairring.trace.program import where

TRACES = "fairring_traces"  # the handler's name


@cache
def register() -> None:
    """Makes the handler known to the server of this process, if torch has one. A second call does nothing."""
    try:
        from torch._C._distributed_c10d import _register_handler
    except ImportError:
        return
    # torch drops it when the process ends, after Python has ended: the last reference must not be that one.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_answer))
    _register_handler(TRACES, _answer)


def _answer(request: Any, response: Any) -> None:
    response.set_content(json.dumps(_core.traces(int(request.get_param("last")), where())), "application/json")
    response.set_status(200)
