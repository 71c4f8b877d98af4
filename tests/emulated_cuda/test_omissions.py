"""Each order that the product makes on a device, left out by the emulator in turn: results are wrong then."""

from __future__ import annotations

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import start

pytestmark = [
    pytest.mark.gpu,
    emulated_devices.only_there,
]

LATE_US = [3000, 30_000]  # the second where a busy machine's loops are as late as the devices with the first
SLICES = 4
SLICE_BYTES = 64 << 10
# Slices of that size, two of which have room in staging.
FEW_SLICES = {"FAIRRING_SLICE_SIZE": str(SLICE_BYTES), "FAIRRING_TOTAL_MEMORY": str(4 * SLICE_BYTES)}


def _wrong_rounds(rank: int) -> int:
    wrong = 0
    for turn in range(12):
        tensor = torch.zeros(SLICES * SLICE_BYTES // 4, device="cuda")
        tensor.add_(rank + turn)  # late: who reads before it reads zeros, or poison
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        seen = tensor.clone()
        tensor.fill_(-1.0)
        wrong += not torch.equal(seen, torch.full_like(seen, float(sum(other + turn for other in range(2)))))
    return wrong


def _play(left_out: str, late_us: int) -> int:
    late = {"EMULATED_CUDA_LATE_US": str(late_us), "EMULATED_CUDA_LATE_ONE_IN": "2"}
    ranks = start("2x1", timeout_seconds=20, environment={**late, **FEW_SLICES, "EMULATED_CUDA_OMIT": left_out})
    try:
        return sum(ranks.run(_wrong_rounds))
    finally:
        ranks.kill()


def test_nothing_is_wrong_where_nothing_is_left_out() -> None:
    assert _play("", LATE_US[0]) == 0


@pytest.mark.parametrize(
    "left_out",
    [
        "stream_wait_event:_core:0:1",  # chains wait for the caller's stream, and for whoever had their place
        "stream_wait_event:libc10_cuda:0:1",  # the caller's stream waits for the chains
        "wait_value:_core:0:3",  # gates: for a place in pinned staging,
        "wait_value:_core:1:3",  # for what has to be summed,
        "wait_value:_core:2:3",  # and for what was summed elsewhere
        "write_value_order:_core:0:3",  # the loop sends what has been copied out,
        "write_value_order:_core:1:3",  # and what has been summed;
        "write_value_order:_core:2:3",  # it gives a place away that nobody needs any more
    ],
)
def test_what_is_left_out_is_noticed(left_out: str) -> None:
    assert any(_play(left_out, late_us) > 0 for late_us in LATE_US)
