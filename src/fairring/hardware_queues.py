"""The hardware queues of a CUDA device, which the streams of a process share.

A stream that stands at a gate of Fairring's (docs/cuda.md) holds up every other stream in its queue, including the
program's. CUDA reads the number of queues when it is first used. On an H200 with 8 of them, the number that CUDA takes
by itself, gates held up some kernels of the program and all of its copies to the host; with 32, none.

Under CUDA's MPS the processes on a GPU share its queues. On an H100 the third or fourth process with 32 of them could
not make a context; with 8 all ran.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
DEFAULT = 8  # CUDA's
MOST = 32  # that CUDA takes
MPS_PIPES = Path("/tmp/nvidia-mps")  # CUDA's default

_log = logging.getLogger("fairring")


def raise_their_number() -> None:
    """Asks CUDA for the most queues, if FAIRRING_CUDA is on or auto, the variable is unset, and CUDA is unused.

    Not under MPS, where there may not be so many.
    """
    import torch

    use = os.environ.get("FAIRRING_CUDA", "").strip().partition(":")[0]
    if use not in ("on", "auto") or VARIABLE in os.environ or torch.cuda.is_initialized():
        return
    if are_shared_by_processes():
        return
    os.environ[VARIABLE] = str(MOST)
    _log.info("%s=%d, for FAIRRING_CUDA=%s", VARIABLE, MOST, use)


def are_shared_by_processes(environment: Mapping[str, str] | None = None) -> bool:
    """Whether this process would use its GPUs by CUDA's MPS."""
    variables = os.environ if environment is None else environment
    return (Path(variables.get("CUDA_MPS_PIPE_DIRECTORY") or MPS_PIPES) / "control").exists()


def few() -> str:
    """The number of queues, if they are so few that gates hold up the program's work; else empty.

    Only where FAIRRING_CUDA is on or auto: the variable is unset then if CUDA was used before it could be set, or
    under MPS, where more can't be asked for.
    """
    if are_shared_by_processes():
        return ""
    text = os.environ.get(VARIABLE, "").strip() or str(DEFAULT)
    return text if text.isdigit() and int(text) < MOST else ""


def warn_of_few() -> None:
    number = few()
    if number:
        _log.warning(
            "CUDA's streams share %s hardware queues, so that calls with FAIRRING_CUDA=on hold up the program's own "
            "work: set %s=%d, or leave it unset and import fairring before CUDA is first used",
            number,
            VARIABLE,
            MOST,
        )
