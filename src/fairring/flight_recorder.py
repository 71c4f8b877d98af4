"""A group that fails does not wait for PyTorch's compiler (torch 2.15 on), which the flight recorder would import.

When a group fails, the recorder writes down its calls. It looks up the line of each in the compiler's code cache, by
`torch._inductor`, and the look alone imports the compiler: seconds of processor time, and more than PyTorch's 15 s on a
busy machine. After that time PyTorch leaves the writing thread behind; if Python ends before that thread does, the
process is aborted instead of ending with its own exit code. A program that has not imported the compiler has no line in
its cache. So while the recorder writes, something else stands in the compiler's place.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Any

VARIABLE = "TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC"  # read at the failure
PATIENCE_MS = 120_000
# Hooks are called in the order of their numbers; the recorder's is between these.
FIRST, LAST = -(1 << 63), (1 << 63) - 1


class _NotImported:
    """The compiler, which is imported when anything but the code cache is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name == "codecache":
            raise AttributeError(name)
        return getattr(importlib.import_module("torch._inductor"), name)


_lock = threading.Lock()
_failing = 0  # groups whose calls are being written
_not_imported = _NotImported()


def wait_until_it_has_written() -> None:
    """Sets the time, unless the user has chosen another."""
    os.environ.setdefault(VARIABLE, str(PATIENCE_MS))


def keep_the_compiler_out(backend: Any) -> None:
    """Stands in for torch's compiler while this backend's group fails."""
    if getattr(backend, "supports_abort_hooks", False):
        backend.register_abort_hook(FIRST, _stand_in)
        backend.register_abort_hook(LAST, _give_way)


def _stand_in() -> None:
    global _failing
    with _lock:
        _failing += 1
        if "torch._inductor" not in sys.modules:
            vars(sys.modules["torch"]).setdefault("_inductor", _not_imported)


def _give_way() -> None:
    global _failing
    with _lock:
        _failing -= 1
        of_torch = vars(sys.modules["torch"])
        if _failing == 0 and of_torch.get("_inductor") is _not_imported:
            del of_torch["_inductor"]
