"""What tests need of the installed torch."""

from __future__ import annotations

import inspect

import pytest
from torch.distributed import distributed_c10d

needs_reconfigure = pytest.mark.skipif(
    not hasattr(distributed_c10d, "_reconfigure"), reason="of a later PyTorch: before 2.15 there is no reconfigure"
)

# 2.11 refuses CUDA to a process that was forked after devices had been counted, emulated ones too.
LETS_FORKS_USE_CUDA = hasattr(distributed_c10d, "_reconfigure")

# 2.11 splits only groups that are bound to a device, and those of no backend but NCCL's.
can_split = pytest.mark.skipif(
    "not safe to split" in inspect.getsource(distributed_c10d), reason="of a later PyTorch: this one can't split groups"
)
