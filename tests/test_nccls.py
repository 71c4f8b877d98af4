"""The reasons of a host to leave calls on CUDA tensors to NCCL under FAIRRING_CUDA=auto."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairring import hardware_queues, nccls


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without network cards, kernel modules or MPS, with the most hardware queues."""
    for name, value in (("INFINIBAND", "cards"), ("MODULES", "modules"), ("DRIVER", "driver")):
        monkeypatch.setattr(nccls, name, tmp_path / value)
    monkeypatch.setattr(hardware_queues, "MPS_PIPES", tmp_path / "mps")
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    return tmp_path


def _card(host: Path, state: str, driver: str = "mlx5_core") -> None:
    port = host / "cards" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text(state)
    (host / driver).mkdir()
    (host / "cards" / "mlx5_0" / "device").mkdir()
    (host / "cards" / "mlx5_0" / "device" / "driver").symlink_to(host / driver)


def test_a_host_without_any_of_it_says_nothing() -> None:
    assert nccls.reason({}) == ""
    assert nccls.fabric() == ""


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "CUDA_LAUNCH_BLOCKING=1"),
        ({"NCCL_COMM_BLOCKING": "1"}, "NCCL_COMM_BLOCKING=1"),
        ({"NCCL_LAUNCH_ORDER_IMPLICIT": "1"}, "NCCL_LAUNCH_ORDER_IMPLICIT=1"),
        ({"NCCL_COMM_BLOCKING": "0"}, ""),
    ],
)
def test_settings_that_keep_calls_from_overlapping(variables: dict[str, str], word: str) -> None:
    assert nccls.reason(variables).startswith(word)


@pytest.mark.parametrize("number", ["1", "8", "31"])
def test_few_hardware_queues(monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", number)
    assert nccls.reason({}).startswith(f"CUDA's streams share {number} hardware queues")


def test_a_gpu_that_processes_share(host: Path) -> None:
    (host / "pipes").mkdir()
    (host / "pipes" / "control").touch()
    assert "MPS" in nccls.reason({"CUDA_MPS_PIPE_DIRECTORY": str(host / "pipes")})


@pytest.mark.parametrize("module", [*nccls.PEER_MEMORY, "dma-buf"])
def test_a_network_that_reaches_the_gpus_memory_is_named(host: Path, module: str) -> None:
    _card(host, "4: ACTIVE\n")
    if module == "dma-buf":
        (host / "driver").write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95\n")
    else:
        (host / "modules" / module).mkdir(parents=True)
    assert nccls.fabric() == f"mlx5_0 ({module})"


def test_cards_that_are_down_or_do_not_reach_it_say_nothing(host: Path) -> None:
    _card(host, "1: DOWN\n", driver="efa")
    (host / "modules" / "nvidia_peermem").mkdir(parents=True)
    assert nccls.fabric() == ""


def test_efa_reaches_it_by_itself(host: Path) -> None:
    _card(host, "4: ACTIVE\n", driver="efa")
    assert nccls.fabric() == "mlx5_0 (efa)"
