"""What an all-reduce of DDP's default bucket costs the host: calls of CUDA and NCCL, which are counts and not times."""

from __future__ import annotations

import ctypes

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import start

pytestmark = [pytest.mark.gpu, emulated_devices.only_there]

BUCKET = 25 << 20  # bytes
WARM_UP = 1  # calls
AS_USERS_HAVE_IT = {"FAIRRING_SLICE_SIZE": "25MiB", "FAIRRING_TOTAL_MEMORY": "50MiB"}
# By Fairring's module, in a call of so many slices. Each slice takes two groups of NCCL's, one for each way through its
# machine; two copies out and two in; three gates and as many words that its stream tells; a sum and an event. It waits
# for the caller's stream, the call's last slice for it, and it may wait for the slice that had its place.
SLICES = 3
MOST = {
    "ncclGroupEnd": 2 * SLICES,
    "ncclCommGetAsyncError": 2 * SLICES,  # once after each group: nobody waits for a thread of NCCL's
    "cudaMemcpyAsync": 4 * SLICES,
    "cuStreamWaitValue": 3 * SLICES,
    "cuStreamWriteValue": 3 * SLICES,
    "cuLaunchKernel": SLICES + 1,  # the last one poisons the results of a call that has failed
    "cudaEventRecord": SLICES + 1,
    "cudaStreamWaitEvent": 3 * SLICES,
    "cudaThreadExchangeStreamCaptureMode": 2,
    "cudaEventCreateWithFlags": SLICES,  # until there is one for each place in staging
    "cudaStreamIsCapturing": 1,
    "cudaGetDevice": 1,
    "cudaSetDevice": 1,
}


def _counts(_rank: int) -> dict[str, int]:
    """Of a call, once others have loaded and connected."""
    runtime = ctypes.CDLL("libcudart.so.13")
    runtime.cudaEmulatedCounts.restype = ctypes.c_char_p
    tensor = torch.ones(BUCKET // 4, device="cuda")
    for _ in range(WARM_UP):
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
    dist.barrier()
    runtime.cudaEmulatedCount()
    work = dist.all_reduce(tensor, async_op=True)
    counted = runtime.cudaEmulatedCounts(b"_core").decode()
    work.wait()
    torch.cuda.synchronize()
    return {call: int(times) for call, times in map(str.split, counted.splitlines())}


@pytest.mark.parametrize("layout", ["2x2", pytest.param("2x4", marks=pytest.mark.slow)])
def test_a_call_makes_few_calls_of_cuda_and_nccl(layout: str) -> None:
    ranks = start(layout, environment=AS_USERS_HAVE_IT)
    for counts in ranks.run(_counts):
        assert {call: times for call, times in counts.items() if times > MOST.get(call, 0)} == {}
    assert ranks.close() == [0] * ranks.size
