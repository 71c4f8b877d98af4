"""The NVLink domain of a machine's GPUs, as a library in NVML's place reports it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fairring import facts, nvlink

CLUSTER = "0123456789abcdef0123456789abcdef"
SOURCE = r"""
#include <string.h>
typedef struct {
  unsigned int version;
  unsigned char clusterUuid[16];
  int status;
  unsigned int cliqueId;
  unsigned char state;
  unsigned int healthMask;
} FabricInfo;
static const struct { int code, status; unsigned char cluster; unsigned int clique; unsigned char state; } gpus[] = {
  GPUS
};
int inits, shutdowns;
int nvmlInit_v2(void) { ++inits; return INIT; }
int nvmlShutdown(void) { ++shutdowns; return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = sizeof(gpus) / sizeof(gpus[0]); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
  *device = (void *)&gpus[index];
  return gpus[index].code == 4 ? 4 : 0;
}
#ifndef OLD
int nvmlDeviceGetGpuFabricInfoV(void *device, FabricInfo *info) {
  const __typeof__(gpus[0]) *gpu = device;
  if (info->version != (sizeof(FabricInfo) | 2u << 24)) return 25;
  if (gpu->code) return gpu->code;
  for (int i = 0; i < 16; ++i) {
    info->clusterUuid[i] = (unsigned char)((2 * i % 16 << 4 | (2 * i + 1) % 16) * gpu->cluster);
  }
  info->status = gpu->status;
  info->cliqueId = gpu->clique;
  info->state = gpu->state;
  return 0;
}
#endif
"""
JOINED = "{0, 0, 1, 7, 3}"
Build = Callable[..., Path]


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Builds a library whose GPUs are given: NVML's code, status, cluster (0 or 1), clique, state of each."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, cc")

    def build(*gpus: str, options: tuple[str, ...] = (), init: int = 0) -> Path:
        library = tmp_path / "libnvidia-ml.so.1"
        source = tmp_path / "nvml.c"
        source.write_text(SOURCE)
        given = [f"-DGPUS={','.join(gpus)}", f"-DINIT={init}", *options]
        subprocess.run([compiler, "-shared", "-fPIC", *given, source, "-o", library], check=True)
        monkeypatch.setattr(nvlink, "LIBRARY", str(library))
        nvlink.domain.cache_clear()
        return library

    return build


def test_gpus_of_one_domain_have_its_name(nvml: Build) -> None:
    library = nvml(JOINED, JOINED)
    assert nvlink.domain() == f"nvlink-{CLUSTER}-7"
    counts = ctypes.CDLL(str(library))
    assert ctypes.c_int.in_dll(counts, "inits").value == ctypes.c_int.in_dll(counts, "shutdowns").value == 1


def test_a_gpu_that_is_not_for_this_process_does_not_count(nvml: Build) -> None:
    nvml(JOINED, "{4, 0, 0, 0, 0}")
    assert nvlink.domain() == f"nvlink-{CLUSTER}-7"


@pytest.mark.parametrize(
    "gpus",
    [
        pytest.param([JOINED, "{0, 0, 1, 8, 3}"], id="several cliques"),
        pytest.param([JOINED, "{0, 0, 0, 0, 0}"], id="one GPU in none"),
        pytest.param(["{0, 0, 0, 7, 3}"], id="no cluster: NVLink inside the host alone"),
        pytest.param(["{0, 0, 1, 7, 2}"], id="not registered yet"),
        pytest.param(["{0, 9, 1, 7, 3}"], id="registering failed"),
        pytest.param(["{3, 0, 1, 7, 3}"], id="not supported"),
    ],
)
def test_without_one_domain_there_is_no_name(nvml: Build, gpus: list[str]) -> None:
    nvml(*gpus)
    assert nvlink.domain() == ""


def test_an_old_a_failing_and_a_missing_library_are_no_domain(nvml: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(JOINED, init=9)
    assert nvlink.domain() == ""
    monkeypatch.setattr(nvlink, "LIBRARY", "/nowhere/libnvidia-ml.so.1")
    assert nvlink.domain() == ""


def test_a_library_without_domains_is_none(nvml: Build) -> None:
    nvml(JOINED, options=("-DOLD",))
    assert nvlink.domain() == ""


def test_machines_for_devices_are_domains_or_else_hosts_as_nccl_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvlink, "domain", lambda: "")
    host = facts.device_machine(None)
    assert facts.machine().startswith(f"{host}/"), "a host holds whole machines"
    assert facts.device_machine("two containers") == "two containers"
    monkeypatch.setattr(nvlink, "domain", lambda: "nvlink-1")
    assert facts.device_machine("two containers") == "nvlink-1"
