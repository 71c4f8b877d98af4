"""The hardware queues of a CUDA device, which the streams of a process share.

A stream that stands at a gate of Fairring's (docs/cuda.md) holds up every other stream in its queue, those of the
program too. CUDA reads how many there are when it is first used.
"""

from __future__ import annotations

import logging
import os

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
DEFAULT = 8  # CUDA's
MOST = 32  # that CUDA takes

_log = logging.getLogger("fairring")


def raise_their_number() -> None:
    """Asks CUDA for as many as it has, where FAIRRING_CUDA=on, nobody has chosen, and CUDA has not been used yet."""
    import torch

    if os.environ.get("FAIRRING_CUDA", "").strip() != "on" or VARIABLE in os.environ or torch.cuda.is_initialized():
        return
    os.environ[VARIABLE] = str(MOST)
    _log.info("%s=%d, for FAIRRING_CUDA=on", VARIABLE, MOST)


def warn_of_few() -> None:
    """Where there are too few for calls to overlap with anything."""
    text = os.environ.get(VARIABLE, "").strip()
    if text.isdigit() and int(text) < DEFAULT:
        _log.warning(
            "%s=%s: CUDA's streams share so few hardware queues that calls with FAIRRING_CUDA=on hold up the program's "
            "own work; unset it, or give %d or more",
            VARIABLE,
            text,
            DEFAULT,
        )
