"""The time to wait while PyTorch's flight recorder (torch 2.15 on) writes down the calls of a failed group.

After that time PyTorch leaves the writing thread behind; if Python ends before that thread does, the process is aborted
instead of ending with its own exit code. The thread imports much of torch first, which on a busy machine takes longer
than PyTorch's 15 s. A thread of Fairring's and the end of the process wait for it.
"""

from __future__ import annotations

import os

VARIABLE = "TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC"  # read at the failure
PATIENCE_MS = 120_000


def wait_until_it_has_written() -> None:
    """Sets the time, unless the user has chosen another."""
    os.environ.setdefault(VARIABLE, str(PATIENCE_MS))
