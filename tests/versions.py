"""What tests need of the installed torch."""

from __future__ import annotations

import pytest
from torch.distributed import distributed_c10d

needs_reconfigure = pytest.mark.skipif(
    not hasattr(distributed_c10d, "_reconfigure"), reason="PyTorch before 2.15 has no reconfigure"
)

can_split = pytest.mark.skipif(not hasattr(distributed_c10d, "split_group"), reason="this PyTorch has no split_group")
