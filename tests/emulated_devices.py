"""Whether the CUDA devices of the tests are emulated: tests/emulated_cuda/run starts them so."""

from __future__ import annotations

import os

import pytest

LIBRARIES = "EMULATED_CUDA_LIBRARIES"  # the variable that says where they are; none: the devices are real
only_there = pytest.mark.skipif(LIBRARIES not in os.environ, reason="of emulated devices")
