"""Emulated CUDA devices in a process of the tests: tests/emulated_cuda/run starts it with their libraries preloaded."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch

LIBRARIES = "EMULATED_CUDA_LIBRARIES"  # the variable that says where they are; none: the devices are real


def load() -> None:
    """From now on this process computes on them with torch's operators."""
    if LIBRARIES in os.environ:
        ctypes.CDLL(str(Path(os.environ[LIBRARIES]) / "libemulated_torch.so"))
        torch.backends.cudnn.enabled = False
