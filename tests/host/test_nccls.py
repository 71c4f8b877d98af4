"""The reasons of a host to leave calls on CUDA tensors to NCCL under FAIRRING_CUDA=auto."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairring import nccls
from fairring.config import CudaHost

PLAIN = CudaHost()


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without network cards, kernel modules or libraries."""
    for name in ("INFINIBAND", "SLINGSHOT", "MODULES", "DRIVER", "LIBRARIES"):
        monkeypatch.setattr(nccls, name, tmp_path / name.lower())
    return tmp_path


def _card(host: Path, state: str, driver: str = "mlx5_core") -> None:
    port = host / "infiniband" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text(state)
    (host / driver).mkdir()
    (host / "infiniband" / "mlx5_0" / "device").mkdir()
    (host / "infiniband" / "mlx5_0" / "device" / "driver").symlink_to(host / driver)


def test_a_host_without_any_of_it_says_nothing() -> None:
    assert nccls.reason(PLAIN) == ""
    assert nccls.fabric(PLAIN) == ""


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "CUDA_LAUNCH_BLOCKING is on"),
        ({"NCCL_LAUNCH_ORDER_IMPLICIT": "2"}, "NCCL_LAUNCH_ORDER_IMPLICIT is on"),
        ({"NCCL_LAUNCH_ORDER_IMPLICIT": "0"}, ""),
    ],
)
def test_settings_that_keep_calls_from_overlapping(variables: dict[str, str], word: str) -> None:
    assert nccls.reason(CudaHost.from_environment(variables)).startswith(word)


@pytest.mark.parametrize("module", [*nccls.PEER_MEMORY, "dma-buf"])
def test_a_network_that_reaches_the_gpus_memory_is_named(host: Path, module: str) -> None:
    _card(host, "4: ACTIVE\n")
    if module == "dma-buf":
        (host / "driver").write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95\n")
    else:
        (host / "modules" / module).mkdir(parents=True)
    assert nccls.fabric(PLAIN) == f"mlx5_0 ({module})"


def test_cards_that_are_down_or_do_not_reach_it_say_nothing(host: Path) -> None:
    _card(host, "1: DOWN\n", driver="efa")
    (host / "modules" / "nvidia_peermem").mkdir(parents=True)
    assert nccls.fabric(PLAIN) == ""


def test_efa_reaches_it_by_itself(host: Path) -> None:
    _card(host, "4: ACTIVE\n", driver="efa")
    assert nccls.fabric(PLAIN) == "mlx5_0 (efa)"


@pytest.mark.parametrize(
    ("variables", "files", "words"),
    [
        ({"NCCL_NET_PLUGIN": "aws-ofi"}, [], "that of NCCL_NET_PLUGIN=aws-ofi"),
        (
            {"LD_LIBRARY_PATH": ":/nowhere:HOST/lib"},
            ["lib/libnccl-net.so"],
            "that of the plug-in HOST/lib/libnccl-net.so",
        ),
        ({}, ["slingshot/cxi0"], "Slingshot (cxi0)"),
        ({"NCCL_NET_PLUGIN": "none", "LD_LIBRARY_PATH": "HOST/lib"}, ["lib/libnccl-net.so"], ""),
    ],
)
def test_a_network_of_nccls_own_is_named(host: Path, variables: dict[str, str], files: list[str], words: str) -> None:
    for file in files:
        (host / file).parent.mkdir(exist_ok=True)
        (host / file).touch()
    there = {name: value.replace("HOST", str(host)) for name, value in variables.items()}
    assert nccls.fabric(CudaHost.from_environment(there)) == words.replace("HOST", str(host))


def test_a_plugin_that_the_loader_finds_is_named(host: Path) -> None:
    (host / "libraries").write_bytes(b"...\0libnccl-net.so\0/usr/lib/libnccl-net.so\0")
    assert nccls.fabric(PLAIN) == "that of the plug-in libnccl-net.so"
