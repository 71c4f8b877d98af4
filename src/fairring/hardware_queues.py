"""The hardware queues of a CUDA device, which the streams of a process share.

A stream that stands at a gate of Fairring's (docs/design.md) holds up every other stream in its queue, including the
program's. CUDA reads the number of queues when it is first used. On an H200 with 8 of them, the number that CUDA takes
by itself, gates held up some kernels of the program and all of its copies to the host; with 32, none.

Under CUDA's MPS the processes on a GPU share its queues. On an H100 the third or fourth process with 32 of them could
not make a context; with 8 all ran.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace

from fairring import nccls
from fairring.config import CudaHost

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
DEFAULT = 8  # CUDA's
MOST = 32  # that CUDA takes

_log = logging.getLogger("fairring")


def raise_their_number() -> None:
    """Asks CUDA for the most queues, if the variable is unset, CUDA is unused, and Fairring may carry out calls on it.

    Not under MPS, where there may not be so many.
    """
    host = CudaHost.from_environment()
    if after_import(host) == host:
        return
    import torch

    if torch.version.cuda is None or torch.cuda.is_initialized():
        return
    os.environ[VARIABLE] = str(MOST)
    _log.info("%s=%d, for FAIRRING_CUDA=%s", VARIABLE, MOST, host.use)


def after_import(host: CudaHost) -> CudaHost:
    """The host as raise_their_number() leaves it where nothing has used CUDA before."""
    return replace(host, queues=str(MOST)) if _are_needed(host) else host


def _are_needed(host: CudaHost) -> bool:
    """False too where all calls are known to be NCCL's: a context with more queues takes longer to be made.

    With auto only in a rank that imports Fairring by itself. Processes that others start inherit the variable, and may
    be programs that want another number.
    """
    if host.use not in ("on", "auto") or host.is_one_machine or host.queues or are_shared_by_processes(host):
        return False
    is_left_to_nccl = nccls.reason(host) or (not host.has_site and nccls.fabric(host))
    return host.use == "on" or (host.is_rank and not host.replaces_gloo and not is_left_to_nccl)


def are_shared_by_processes(host: CudaHost) -> bool:
    """Whether this process would use its GPUs by CUDA's MPS."""
    return (host.mps_pipes / "control").exists()


def few(host: CudaHost) -> str:
    """The number of queues, if they are so few that gates hold up the program's work; else empty.

    Under MPS more can't be asked for, and CUDA's own number does.
    """
    text = host.queues or str(DEFAULT)
    enough = DEFAULT if are_shared_by_processes(host) else MOST
    return text if text.isdigit() and int(text) < enough else ""


def reason(host: CudaHost) -> str:
    """The reason to leave calls on CUDA tensors to NCCL; empty: there are queues enough."""
    number = few(host)
    return (
        f"CUDA's streams share {number} hardware queues there, so gates would hold up the program's work: import "
        f"fairring before CUDA is first used, or set {VARIABLE}={MOST}"
        if number
        else ""
    )


def warn_of_few() -> None:
    host = CudaHost.from_environment()
    if (number := few(host)) and not host.is_one_machine:
        _log.warning(
            "CUDA's streams share %s hardware queues, so that calls with FAIRRING_CUDA=on hold up the program's own "
            "work: set %s=%d, or leave it unset and import fairring before CUDA is first used",
            number,
            VARIABLE,
            MOST,
        )
