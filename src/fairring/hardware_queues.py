"""The hardware queues of a CUDA device, which the streams of a process share.

A stream that stands at a gate of Fairring's (docs/cuda.md) holds up every other stream in its queue, including the
program's. CUDA reads the number of queues when it is first used. On an H200 with 8 of them, the number that CUDA takes
by itself, gates held up some kernels of the program and all of its copies to the host; with 32, none.
"""

from __future__ import annotations

import logging
import os

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
DEFAULT = 8  # CUDA's
MOST = 32  # that CUDA takes

_log = logging.getLogger("fairring")


def raise_their_number() -> None:
    """Asks CUDA for the most queues, if FAIRRING_CUDA is on or auto, the variable is unset, and CUDA is unused."""
    import torch

    use = os.environ.get("FAIRRING_CUDA", "").strip().partition(":")[0]
    if use not in ("on", "auto") or VARIABLE in os.environ or torch.cuda.is_initialized():
        return
    os.environ[VARIABLE] = str(MOST)
    _log.info("%s=%d, for FAIRRING_CUDA=%s", VARIABLE, MOST, use)


def few() -> str:
    """The number of queues, if they are so few that gates hold up the program's work; else empty.

    Only where FAIRRING_CUDA is on or auto: the variable is unset then if CUDA was used before it could be set.
    """
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
