"""Whether the CUDA devices of the tests are emulated: tests/emulated_cuda/run starts them so."""

from __future__ import annotations

import os

import pytest

LIBRARIES = "EMULATED_CUDA_LIBRARIES"  # the variable that says where they are; none: the devices are real
ARE_HERE = LIBRARIES in os.environ
only_there = pytest.mark.skipif(not ARE_HERE, reason="of emulated devices")


def fewer(elements: int) -> int:
    """A sixteenth on emulated devices, where a core computes; the slices of gpu_machines.py are smaller by as much."""
    return elements // 16 if ARE_HERE else elements
