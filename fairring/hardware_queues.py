"""The hardware queues of a CUDA device, which the streams of a process share.

A stream that stands at a gate of Fairring's (docs/cuda.md) holds up every other stream in its queue, including the
program's. CUDA reads the number of queues when it is first used.
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
    """The number of queues, if they are too few for calls to overlap with anything; else empty."""
    text = os.environ.get(VARIABLE, "").strip()
    return text if text.isdigit() and int(text) < DEFAULT else ""


def warn_of_few() -> None:
    text = few()
    if text:
        _log.warning(
            "%s=%s: CUDA's streams share so few hardware queues that calls with FAIRRING_CUDA=on hold up the program's "
            "own work; unset it, or give %d or more",
            VARIABLE,
            text,
            DEFAULT,
        )
