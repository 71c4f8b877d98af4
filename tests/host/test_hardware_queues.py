"""The number of hardware queues that Fairring asks of CUDA for the streams of a device."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from fairring import hardware_queues, nccls
from fairring.config import CudaHost
from fairring.hardware_queues import VARIABLE


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("FAIRRING_CUDA", "on")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv(VARIABLE, "8")  # so that it is put back
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr(nccls, "fabric", lambda _host: "")
    return monkeypatch


@pytest.mark.parametrize("cuda", ["on", "auto", "auto:4MiB", ""])
def test_they_are_raised_where_nobody_has_chosen(environment: pytest.MonkeyPatch, cuda: str) -> None:
    environment.setenv("FAIRRING_CUDA", cuda)
    hardware_queues.raise_their_number()
    assert os.environ[VARIABLE] == "32"


def test_a_choice_stands(environment: pytest.MonkeyPatch) -> None:
    environment.setenv(VARIABLE, "16")
    hardware_queues.raise_their_number()
    assert os.environ[VARIABLE] == "16"


@pytest.mark.parametrize("cuda", ["off", "host"])
def test_nothing_is_set_where_cuda_is_not_ours(environment: pytest.MonkeyPatch, cuda: str) -> None:
    environment.setenv("FAIRRING_CUDA", cuda)
    hardware_queues.raise_their_number()
    assert VARIABLE not in os.environ


def test_nothing_is_set_once_cuda_has_read_it(environment: pytest.MonkeyPatch) -> None:
    environment.setattr("torch.cuda.is_initialized", lambda: True)
    hardware_queues.raise_their_number()
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(
    ("cuda", "variables"),
    [
        ("on", {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}),
        ("auto", {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}),
        ("auto", {"NCCL_LAUNCH_ORDER_IMPLICIT": "1"}),
        ("auto", {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}),
        ("auto", {"SLURM_JOB_NUM_NODES": "1"}),
        ("auto", {"FAIRRING_REPLACE": "gloo"}),
        ("auto", {"RANK": ""}),
    ],
)
def test_nothing_is_set_where_all_calls_are_nccls(
    environment: pytest.MonkeyPatch, cuda: str, variables: dict[str, str]
) -> None:
    for name, value in {"FAIRRING_CUDA": cuda, **variables}.items():
        environment.setenv(name, value)
    hardware_queues.raise_their_number()
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(("site", "are_raised"), [("", False), ("north", True)])
def test_a_faster_network_of_nccls_counts_inside_a_site(
    environment: pytest.MonkeyPatch, site: str, are_raised: bool
) -> None:
    environment.setattr(nccls, "fabric", lambda _host: "mlx5_0 (nvidia_peermem)")
    environment.setenv("FAIRRING_CUDA", "auto")
    environment.setenv("FAIRRING_SITE", site)
    hardware_queues.raise_their_number()
    assert (VARIABLE in os.environ) is are_raised


def test_a_replica_of_torchfts_on_one_machine_is_not_the_whole_job(environment: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "TORCHFT_LIGHTHOUSE": "http://a:1"}.items():
        environment.setenv(name, value)
    hardware_queues.raise_their_number()
    assert os.environ[VARIABLE] == "32"


def test_nothing_is_set_where_torch_has_no_cuda(environment: pytest.MonkeyPatch) -> None:
    environment.setattr("torch.version.cuda", None)
    hardware_queues.raise_their_number()
    assert VARIABLE not in os.environ


def test_none_are_asked_for_where_processes_share_them(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "control").touch()
    environment.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    hardware_queues.raise_their_number()
    assert VARIABLE not in os.environ
    with caplog.at_level(logging.WARNING):
        hardware_queues.warn_of_few()
    assert not caplog.text, "more can't be had there"


@pytest.mark.parametrize(("number", "warns"), [("1", True), ("8", True), ("31", True), ("32", False)])
def test_too_few_are_named(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: str, warns: bool
) -> None:
    environment.setenv(VARIABLE, number)
    with caplog.at_level(logging.WARNING):
        hardware_queues.warn_of_few()
    assert (f"share {number} hardware queues" in caplog.text) is warns


def test_cudas_own_number_is_too_few(environment: pytest.MonkeyPatch) -> None:
    environment.setattr("torch.cuda.is_initialized", lambda: True)
    hardware_queues.raise_their_number()
    assert hardware_queues.few(CudaHost.from_environment()) == "8"


@pytest.mark.parametrize(("queues", "word"), [("1", "share 1 hardware queues"), ("8", "")])
def test_cudas_own_number_does_where_processes_share_them(tmp_path: Path, queues: str, word: str) -> None:
    (tmp_path / "control").touch()
    host = CudaHost(queues=queues, mps_pipes=tmp_path)
    assert word in hardware_queues.reason(host)
    assert bool(hardware_queues.reason(host)) is bool(word)
