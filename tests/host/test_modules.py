"""Which of the package's C++ modules is loaded for which torch, and the error if there is none."""

from __future__ import annotations

import re
import subprocess
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch

from fairring import _core, _modules


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a package with modules for torch 2.9, 2.11 and 2.15."""
    monkeypatch.setattr(_modules, "PACKAGE", tmp_path)
    for name in ("_core_2_9", "_core_2_15", "_core_2_11"):
        (tmp_path / f"{name}{EXTENSION_SUFFIXES[0]}").write_bytes(b"not a library")
    return tmp_path


@pytest.mark.parametrize(
    ("version", "name"), [("2.9.1", "_core_2_9"), ("2.11.0+cu130", "_core_2_11"), ("2.15.0a0+git12ab", "_core_2_15")]
)
def test_each_torch_gets_the_module_of_its_minor_version(package: Path, version: str, name: str) -> None:
    assert _modules.file_for(version) == package / f"{name}{EXTENSION_SUFFIXES[0]}"


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("version", ["2.1.2", "2.12.0", "2.16.0.dev20261101", "3.11.0", "unknown"])
def test_another_torch_is_an_error_that_names_the_torches_and_the_command(version: str) -> None:
    with pytest.raises(ImportError) as error:
        _modules.file_for(version)
    assert f"built for torch 2.9, 2.11, 2.15, but torch {version} is installed" in str(error.value)
    assert "-m pip install 'torch==2.15.*'" in str(error.value)


def test_modules_for_another_python_are_none(package: Path) -> None:
    for file in list(package.iterdir()):
        file.rename(package / file.name.replace(EXTENSION_SUFFIXES[0], ".cpython-39-x86_64-linux-gnu.so"))
    with pytest.raises(
        ImportError, match=r"Fairring's C\+\+ module is not built here for Python 3\.\d+; run: make build"
    ):
        _modules.file_for("2.15.0")


def test_a_module_that_torch_lacks_a_symbol_for_says_what_to_do(package: Path) -> None:
    source = "int absent(void); int PyInit__core(void) { return absent(); }"
    module = package / f"_core_2_15{EXTENSION_SUFFIXES[0]}"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", module], input=source, text=True, check=True)
    with pytest.raises(ImportError, match=r"does not fit this build of torch 2\.15\.0.*pip install.*absent"):
        _modules.load_for("2.15.0")


def test_a_file_that_is_no_library_says_what_to_do(package: Path) -> None:  # noqa: ARG001
    with pytest.raises(
        ImportError, match=r"does not fit this build of torch 2\.11\.0.*pip install --no-build-isolation"
    ):
        _modules.load_for("2.11.0")


def test_the_module_links_nothing_of_cuda() -> None:
    file = _modules.file_for(torch.__version__)
    for command in (["readelf", "--dynamic"], ["nm", "--dynamic", "--undefined-only"]):
        shown = subprocess.run([*command, file], capture_output=True, text=True, check=True, timeout=60).stdout
        assert not re.findall(r"\b(?:cuda|cu[A-Z]|nccl)\w+|lib(?:cud|nccl|c10_cuda|torch_cuda)\S+", shown)


def test_auto_takes_tcp_first_and_for_rdma_tensorpipe_so_verbs_are_taken_by_name_alone() -> None:
    assert _core.transports() == ["tcp", "uv", "shm", "verbs", "ibv"]
