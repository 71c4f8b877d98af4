"""CUDA devices that do not exist, for the ranks of a lab: see docs/development.md.

They are libraries that a checkout of Fairring's sources builds. Preloaded, they take the place of CUDA's and NCCL's own
under torch's unchanged CUDA build. Standard library only.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path

from fairring.lab.cluster import LabError

MOST = 64  # of a machine
CHECKOUT = Path(__file__).parents[3]
PRELOADED = ("libcudart.so.13", "libcuda.so.1", "libnccl.so.2", "libemulated_kernels.so")
OPERATORS = "libemulated_torch.so"  # torch's, which the emulated runtime loads once torch is there


def variables(number: int, inherited: Mapping[str, str], torch: str | None = None) -> dict[str, str]:
    """The environment variables with which to start a rank.

    number: devices of each machine. torch: its version; None: the installed one.

    Raises LabError if the number makes no sense, or if the libraries have not been built for that torch.
    """
    if not 1 <= number <= MOST:
        raise LabError(f"--emulated-gpus {number} is no number of devices; give 1 to {MOST}")
    folder = _folder(_torch() if torch is None else torch)
    preloaded = [str(folder / name) for name in PRELOADED] + inherited.get("LD_PRELOAD", "").split()
    return {
        "EMULATED_CUDA_DEVICES": str(number),
        "EMULATED_CUDA_LIBRARIES": str(folder),
        "LD_PRELOAD": ":".join(preloaded),
    }


def _torch() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise LabError("--emulated-gpus needs torch, in its build for CUDA 13; install it") from None


def _folder(torch: str) -> Path:
    release = ".".join(torch.split(".")[:2])
    folder = CHECKOUT / "build" / f"torch-{release}" / "cmake" / "tests" / "emulated_cuda"
    if missing := [name for name in (*PRELOADED, OPERATORS) if not (folder / name).exists()]:
        is_checkout = (CHECKOUT / "Makefile").exists()
        advice = f"run `make emulated-cuda` in {CHECKOUT}" if is_checkout else "clone them and run `make emulated-cuda`"
        raise LabError(
            f"--emulated-gpus needs libraries that a checkout of Fairring's sources builds, and {folder} has no "
            f"{missing[0]}: {advice}"
        )
    return folder
