"""The image that a guest boots: Debian's kernel and a small initial file system with the modules for soft-RoCE.

Only packages of programs are installed; the kernel is unpacked beside the build and belongs to no system.
"""

from __future__ import annotations

import lzma
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

PACKAGES = {  # what they are needed for -> who brings it
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "modprobe": "kmod",
    "cpio": "cpio",
    "rdma": "iproute2",
}
PROVIDERS = "ibverbs-providers"  # of libibverbs, which the guest takes from the host's files
# rxe asks the kernel's crypto for "crc32" by name: no dependency of a module shows it.
MODULES = ["virtio_pci", "virtio_net", "9pnet_virtio", "9p", "crc32_generic", "rdma_rxe"]
FIRST_PROGRAM = Path(__file__).parent / "guest.sh"


class UnavailableError(Exception):
    """This machine can't run the guests; the text says what it lacks."""


@dataclass(frozen=True)
class Image:
    kernel: Path
    initrd: Path


def prepare(directory: Path) -> Image:
    """The image in the directory, made where it is not there yet. Raises UnavailableError."""
    if platform.machine() != "x86_64":
        raise UnavailableError(f"the guests are x86-64, and this machine is {platform.machine()}")
    _install_programs()
    directory.mkdir(parents=True, exist_ok=True)
    root = directory / "kernel"
    if not list(root.glob("boot/vmlinuz-*")):
        _unpack_kernel(directory, root)
    (kernel,) = root.glob("boot/vmlinuz-*")
    initrd = directory / "initrd"
    if not initrd.exists() or initrd.stat().st_mtime < max(path.stat().st_mtime for path in (FIRST_PROGRAM, kernel)):
        _make_initrd(root, kernel.name.removeprefix("vmlinuz-"), directory / "first", initrd)
    return Image(kernel, initrd)


def _install_programs() -> None:
    missing = [package for program, package in PACKAGES.items() if not shutil.which(program, path=_path())]
    if not list(Path("/usr/lib").glob("*/libibverbs/librxe*")):
        missing.append(PROVIDERS)
    if not missing:
        return
    if os.getuid() != 0 or not shutil.which("apt-get"):
        raise UnavailableError(f"needs these packages of Debian: {' '.join(missing)}")
    _run("apt-get", "update")
    _run("apt-get", "install", "--yes", "--no-install-recommends", *missing, DEBIAN_FRONTEND="noninteractive")


def _unpack_kernel(directory: Path, root: Path) -> None:
    depends = _run("apt-cache", "depends", "linux-image-amd64")
    package = re.search(r"Depends: (linux-image-\S+)", depends)
    if not package:
        raise UnavailableError("no package linux-image-amd64 to take a kernel from")
    _run("apt-get", "download", package[1], cwd=directory)
    (archive,) = directory.glob(f"{package[1]}_*.deb")
    _run("dpkg", "-x", str(archive), str(root))
    archive.unlink()


def _make_initrd(root: Path, version: str, first: Path, initrd: Path) -> None:
    base = root if (root / "lib/modules").exists() else root / "usr"
    _run("depmod", "-b", str(base), version)
    shutil.rmtree(first, ignore_errors=True)
    for folder in ("bin", "modules"):
        (first / folder).mkdir(parents=True)
    shutil.copy(shutil.which("busybox", path=_path()) or "", first / "bin/busybox")
    shutil.copy(FIRST_PROGRAM, first / "init")
    (first / "init").chmod(0o755)
    order: list[str] = []
    for name in MODULES:
        for line in _run("modprobe", "-d", str(base), "-S", version, "--show-depends", name).splitlines():
            if line.startswith("insmod "):
                _add_module(Path(line.split()[1]), first / "modules", order)
    (first / "modules/order").write_text("".join(f"{name}\n" for name in order))
    names = "".join(f"{path.relative_to(first)}\n" for path in sorted(first.rglob("*")))
    packed = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet"], input=names.encode(), cwd=first, capture_output=True, check=True
    )
    initrd.write_bytes(packed.stdout)


def _add_module(source: Path, folder: Path, order: list[str]) -> None:
    name = source.name.removesuffix(".xz")
    if name in order:
        return
    order.append(name)
    data = source.read_bytes()
    (folder / name).write_bytes(lzma.decompress(data) if source.suffix == ".xz" else data)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _run(*command: str, cwd: Path | None = None, **variables: str) -> str:
    environment = {**os.environ, "PATH": _path(), **variables}
    try:
        return subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=True, timeout=600
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        words = str(getattr(error, "stderr", "") or "")[-300:]
        raise UnavailableError(f"{' '.join(command)}: {error} {words}") from error
