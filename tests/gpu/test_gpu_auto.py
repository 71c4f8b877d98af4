"""FAIRRING_CUDA=auto: who has the calls on CUDA tensors is decided once, by all ranks alike; one no is everybody's."""

from __future__ import annotations

from pathlib import Path

import emulated_devices
import pytest
import torch
import torch.distributed as dist
from gpu_machines import start
from standard_error import standard_error

from fairring import _core

pytestmark = pytest.mark.gpu

AUTO = {"FAIRRING_CUDA": "auto:64KiB", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
SMALL, LARGE = 1000, 50_000  # elements
LOCKED = {"EMULATED_CUDA_DRIVER_LOCK": "1"}  # while a thread waits in the driver, it calls no functions


def _carried() -> int:
    """Bytes that this rank has sent over the rails so far."""
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))  # type: ignore[union-attr]
    return (_core.traffic(backend) or {}).get(1, {}).get("bytes", 0)


def _calls(rank: int) -> tuple[list[bool], list[str]]:
    """Whether the rails carried a small call, a large one, and another of each; and the warnings."""
    were_ours = []
    ranks = dist.get_world_size()
    with standard_error() as lines:
        dist.all_reduce(
            torch.ones(LARGE, device="cuda")
        )  # the trial comes before it, and what that says is carried too
        torch.cuda.synchronize()
        dist.barrier(device_ids=None)
        for elements in (SMALL, LARGE, SMALL, LARGE):
            before = _carried()
            tensor = torch.full((elements,), rank + 1.0, device="cuda")
            dist.all_reduce(tensor)
            assert torch.equal(tensor, torch.full_like(tensor, ranks * (ranks + 1) / 2))
            were_ours.append(_carried() > before)
    return were_ours, [line.strip() for line in lines if "FAIRRING_CUDA=auto" in line]


def test_large_calls_are_fairrings_and_small_ones_nccls() -> None:
    ranks = start("2x1", environment={**AUTO, **LOCKED})
    for were_ours, warnings in ranks.run(_calls):
        assert were_ours == [False, True, False, True]
        assert warnings == []
    assert ranks.close() == [0, 0]


@emulated_devices.only_there
@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"FAIRRING_CUDA_TELLS": "functions"}, "FAIRRING_CUDA_TELLS=functions"),
        ({"EMULATED_CUDA_OMIT": "wait_value:_core:0:1"}, "streams don't stand at gates"),
    ],
)
def test_a_trial_that_fails_leaves_all_calls_to_nccl_and_says_why(variables: dict[str, str], reason: str) -> None:
    ranks = start("2x1", environment={**AUTO, **variables})
    results = ranks.run(_calls)
    assert [were_ours for were_ours, _ in results] == [[False] * 4] * 2
    (warning,) = results[0][1]
    assert "rank 0 (" in warning
    assert reason in warning
    assert results[1][1] == []
    assert ranks.close() == [0, 0]


def test_what_one_host_has_against_it_leaves_all_calls_to_nccl(tmp_path: Path) -> None:
    (tmp_path / "control").touch()
    ranks = start("2x1", environment=AUTO, of_last={"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)})
    results = ranks.run(_calls)
    assert [were_ours for were_ours, _ in results] == [[False] * 4] * 2
    (warning,) = results[0][1]
    assert "rank 1 (" in warning
    assert "MPS" in warning
    assert ranks.close() == [0, 0]
