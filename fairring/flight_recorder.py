"""How long PyTorch's flight recorder (torch 2.15 on) is waited for as it writes down the calls of a failed group.

After that it leaves the thread behind that does so; if Python ends before that thread does, the process is aborted
instead of ending with its own exit code. The thread imports much of torch first, which on a busy machine takes longer
than PyTorch's 15 s. Who waits is a thread of Fairring's, and the end of the process.
"""

from __future__ import annotations

import os

VARIABLE = "TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC"  # read at the failure
PATIENCE_MS = 120_000


def wait_until_it_has_written() -> None:
    """Where nobody has chosen another time."""
    os.environ.setdefault(VARIABLE, str(PATIENCE_MS))
