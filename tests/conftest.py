"""Worlds of ranks on this machine (ranks.py) that tests share. Tests that change theirs have their own: `strangers`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from gpu_machines import start
from ranks import Ranks

# A rank whose group fails has PyTorch's flight recorder write a file, which keeps the group's store, in every test of
# an error. Tests of what the recorder sees turn it on again.
os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "0")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "gpu" in item.keywords and not torch.cuda.is_available():
        pytest.skip("no CUDA device here")


@pytest.fixture(scope="module")
def pair() -> Iterator[Ranks]:
    yield from _started(2)


@pytest.fixture(scope="module")
def three() -> Iterator[Ranks]:
    yield from _started(3)


@pytest.fixture
def strangers() -> Iterator[Ranks]:
    """Two ranks without a group yet, for a single test."""
    with Ranks(2) as ranks:
        yield ranks


@pytest.fixture
def trio() -> Iterator[Ranks]:
    """Three ranks in a group, for a single test."""
    with Ranks(3) as ranks:
        ranks.init()
        yield ranks


@pytest.fixture(scope="module", params=["2x1", pytest.param("3x1", marks=pytest.mark.slow), "2x2"])
def gpu_cluster(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    """Emulated machines on the GPUs of this one (gpu_machines.py); so does the next fixture."""
    yield from _emulated(request.param)


@pytest.fixture(scope="module")
def two_gpu_machines() -> Iterator[Ranks]:
    yield from _emulated("2x1")


def _emulated(layout: str) -> Iterator[Ranks]:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    ranks = start(layout, environment={"TORCH_FR_BUFFER_SIZE": "100"})
    yield ranks
    assert ranks.close() == [0] * ranks.size, "ranks that did not destroy their group did not end well"


def _started(size: int) -> Iterator[Ranks]:
    ranks = Ranks(size)
    ranks.init()
    yield ranks
    assert ranks.close() == [0] * size, "ranks that did not destroy their group did not end well"
