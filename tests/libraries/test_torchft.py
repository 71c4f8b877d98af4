"""torchft's own tests with a Fairring group in Gloo's place, and training that goes on when a replica is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

from fairring.traffic import traffic
from libraries import torchft_suite

pytest.importorskip("torchft", reason="torchft is not installed here: make test-libraries")

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_torchft.py"
TIMEOUT_SECONDS = 280  # a safety net


@pytest.mark.slow
@pytest.mark.parametrize("file", torchft_suite.FILES)
def test_torchfts_own_tests_pass_with_a_group_of_ours(file: str) -> None:
    if not torchft_suite.has(file):
        pytest.skip(f"this torchft has no {file}")
    result = torchft_suite.run("fairring", file)
    assert result.failed == {}
    assert result.passed


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["fairring", "gloo"])
def test_training_goes_on_as_a_replica_is_killed_and_one_joins(backend: str) -> None:
    command = [sys.executable, str(EXAMPLE), "--backend", backend, "--kills", "1", "--steps", "10"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    for line in ("2 did their next step", "one has joined; 3 train", "equal on all 3 replicas: True"):
        assert line in ended.stdout


def _quantized(rank: int, lighthouse: str) -> list[bool]:
    """Whether means of each number of dimensions are near the exact ones, but rounded, and cross in few bytes."""
    os.environ["TORCHFT_LIGHTHOUSE"] = lighthouse
    from fairring.torchft import Manager, ProcessGroupFairring

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = ProcessGroupFairring(timeout=timedelta(seconds=60))
    manager = Manager(
        pg=group,
        min_replica_size=2,
        use_async_quorum=False,
        init_sync=False,  # else the first step has one participant, whose state the other takes
        load_state_dict=lambda _: None,
        state_dict=dict,
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        hostname="127.0.0.1",
        replica_id=f"replica{rank}",
    )
    manager.start_quorum()
    said = []
    for dtype, shape in (
        (torch.float32, (500,)),
        (torch.float64, (20, 25)),
        (torch.bfloat16, (5, 10, 10)),
        (torch.float32, (2, 5, 5, 10)),
    ):
        given = [torch.randn(shape, generator=torch.Generator().manual_seed(other)) for other in range(2)]
        tensor = given[rank].to(dtype, copy=True).transpose(0, len(shape) - 1)
        manager.allreduce(tensor, should_quantize=True).wait()
        error = (tensor - torch.stack(given).mean(0).transpose(0, len(shape) - 1)).abs().max()
        said.append(bool(1e-4 < error < 0.05))
    # Not even one of them went in its own dtype: 500 elements of bf16 are 1000 bytes.
    said.append(4 * 500 < traffic(group._pg)["site"].bytes < 3000)
    said += [manager.should_commit(), manager.errored() is None]
    manager.shutdown()
    return said


def test_should_quantize_takes_tensors_of_any_dtype_shape_and_strides() -> None:
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=60000, heartbeat_timeout_ms=60000)
    address = f"http://127.0.0.1:{lighthouse.address().rsplit(':', 1)[1]}"
    places = [{"FAIRRING_SITE": f"site{rank}", "FAIRRING_MACHINE": f"machine{rank}"} for rank in range(2)]
    with Ranks(2, of_rank=places) as ranks:
        assert ranks.run(_quantized, address) == [[True] * 7] * 2
    lighthouse.shutdown()
