"""Versions, and the results of importing torch and the C++ module."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fairring._modules import DISTRIBUTION, minors_here
from fairring.check import child, imported


def imports(environment: Mapping[str, str], seconds: float = child.START_SECONDS) -> dict[str, Any]:
    """The reports of torch and the module, each with "error", which is empty if it can be imported, and "late".

    Both are imported at once, and torch without this package, which needs one that fits.
    """
    with ThreadPoolExecutor() as pool:
        torch = pool.submit(child.run, ["-c", Path(imported.__file__).read_text(), "torch"], environment, seconds)
        module = pool.submit(child.run, ["-m", "fairring.check.imported", "module"], environment, seconds)
        found = {"torch": torch.result(), "module": module.result()}
    return {name: {**(ended.found or {}), "error": ended.error, "late": ended.late} for name, ended in found.items()}


def imported_here(peers: int) -> dict[str, Any]:
    """The same of a process that uses both already. peers: the number of other ranks."""
    well = {"error": "", "late": False}
    return {"torch": {**imported.torch(), **well}, "module": {**imported.module(peers), **well}}


def versions() -> dict[str, Any]:
    """The versions, without importing torch. Empty texts: not known here."""
    return {
        "fairring": _version_of(DISTRIBUTION),
        "built_for_torch": ", ".join(minors_here()),
        "torch": _version_of("torch"),
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": _distribution(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": _libc(),
    }


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # another libc than glibc
        return " ".join(platform.libc_ver())
