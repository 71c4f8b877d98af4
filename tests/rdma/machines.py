"""Boots the guests on two emulated wires, the first for RDMA, the second for the rest, and waits for their end."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from rdma.image import Image

MEMORY = "1500M"
MTU = 4200  # of the wire for RDMA: frames of 4096 bytes of payload
KEPT_BYTES = 160  # of each frame that is captured
GUEST = Path(__file__).parent / "guest.py"
TESTS = GUEST.parents[1]
SEARCHED = f"{TESTS.parent / 'src'}:{TESTS}:{TESTS / 'programs'}"


class GuestError(Exception):
    """A guest did not come to its end; the text holds its last words."""


def run(image: Image, machines: int, out: Path, timeout: float) -> float:
    """All cases; returns the seconds that it took. Raises GuestError. Captures: out/wire0.pcap, out/wire1.pcap."""
    out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with ExitStack() as stack:
        wires = [[stack.enter_context(end) for end in socket.socketpair()] for _ in range(2)]
        guests = []
        for machine in range(machines):
            command = ["env", f"PYTHONPATH={SEARCHED}", sys.executable, str(GUEST), str(machine), str(machines)]
            (out / f"command{machine}").write_text(shlex.join(command))
            sockets = [wire[machine].fileno() for wire in wires]
            log = stack.enter_context((out / f"machine{machine}.log").open("wb"))
            guest = subprocess.Popen(
                _command(image, machine, sockets, out),
                pass_fds=sockets,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(guest.wait)
            stack.callback(guest.kill)
            guests.append(guest)
        for machine, guest in enumerate(guests):
            _await_end(guest, start + timeout, out / f"machine{machine}.log")
    return time.monotonic() - start


def _await_end(guest: subprocess.Popen[bytes], end: float, log: Path) -> None:
    try:
        guest.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise GuestError(f"{log.stem} still ran at the end of its time; it said: {log.read_text()[-2000:]}") from None
    if "guest: ended with 0" not in log.read_text():
        raise GuestError(f"{log.stem} failed; it said: {log.read_text()[-2000:]}")


def _command(image: Image, machine: int, sockets: list[int], out: Path) -> list[str]:
    words = f"console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0 machine={machine} mtu={MTU}"
    command = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]
    command += ["-m", MEMORY, "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio"]
    command += ["-kernel", str(image.kernel), "-initrd", str(image.initrd)]
    command += ["-append", f"{words} command=/run/out/command{machine} end"]
    command += ["-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"]
    command += ["-virtfs", f"local,path={out},mount_tag=out,security_model=none"]
    for wire, descriptor in enumerate(sockets):
        address = f"52:54:00:7{wire}:00:0{machine + 1}"
        command += ["-netdev", f"stream,id=wire{wire},addr.type=fd,addr.str={descriptor}"]
        command += ["-device", f"virtio-net-pci,netdev=wire{wire},mac={address},romfile="]
        if machine == 0:
            capture = f"filter-dump,id=dump{wire},netdev=wire{wire},maxlen={KEPT_BYTES},file={out}/wire{wire}.pcap"
            command += ["-object", capture]
    return command
