"""The lab's end of its keeper process (keeper_process.py): starts it, holds the machines' namespaces, sends requests.

Used from one thread. close() lets the keeper go, and with it and the last rank the network goes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from fairring.extra import OF_LABS, MissingPackageError, require
from fairring.lab.child import Machine, lab_python
from fairring.lab.cluster import LabError, Link, host_lines
from fairring.lab.sites import Uplink

_LONGEST_MESSAGE = 65536


class NoNetworkError(LabError):
    """Namespaces or shaped links aren't possible here."""


@dataclass(frozen=True)
class Cables:
    """All of a lab's network: machines to bridges, and the bridges of its sites to each other."""

    links: Sequence[Link]
    uplinks: Sequence[Uplink]


class Keeper:
    """cables: None for a keeper that only guards. Raises NoNetworkError if they can't be made here."""

    def __init__(self, machines: int, cables: Cables | None) -> None:
        try:
            require("fairring lab", OF_LABS)
        except MissingPackageError as error:
            raise LabError(str(error)) from error
        self.channel, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.machines = [Machine()] * machines
        described = json.dumps(None if cables is None else asdict(cables))
        with far_end:
            self._process = subprocess.Popen(
                lab_python(
                    "keeper_process",
                    str(far_end.fileno()),
                    str(os.getpid()),
                    described,
                    isolated=False,
                ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[far_end.fileno()],
                start_new_session=True,
            )
        if cables is not None:
            try:
                self._take_namespaces(machines, host_lines(cables.links))
            except LabError:
                self.close()
                raise

    def guard(self, pid: int) -> None:
        """From now on the keeper kills this process group if the lab dies."""
        self._send({"guard": pid})

    def release(self, pid: int) -> None:
        """The process has been reaped: its number may be reused."""
        self._send({"release": pid})

    def set_link(self, machine: int, up: bool, interface: int | None = None) -> None:
        """Returns when it is done. interface: None for all. Raises LabError."""
        self._send({"machine": machine, "up": up, "interface": interface})
        answer, _ = self._receive()
        if "error" in answer:
            raise LabError(f"the link of machine {machine} cannot be set {'up' if up else 'down'}: {answer['error']}")

    def set_uplink(self, site: int, up: bool) -> None:
        """As set_link()."""
        self._send({"site": site, "up": up})
        answer, _ = self._receive()
        if "error" in answer:
            raise LabError(f"the uplink of site {site} cannot be set {'up' if up else 'down'}: {answer['error']}")

    def close(self) -> None:
        self.channel.close()
        self._process.wait()
        for descriptor in {descriptor for machine in self.machines for descriptor in machine.descriptors}:
            os.close(descriptor)
        self.machines = []

    def _take_namespaces(self, machines: int, hosts: str) -> None:
        answer, descriptors = self._receive()
        if "error" in answer:
            raise NoNetworkError(answer["error"])
        user = descriptors[0] if answer["user"] else None
        self.machines = [Machine(user, self._receive()[1][0], hosts) for _ in range(machines)]

    def _send(self, message: dict[str, Any]) -> None:
        # A keeper that has died shows as the end of its channel, which the lab watches.
        with suppress(BrokenPipeError):
            self.channel.send(json.dumps(message).encode())

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        packet, descriptors, _, _ = socket.recv_fds(self.channel, _LONGEST_MESSAGE, 1)
        if not packet:
            raise LabError(f"the lab's keeper (process {self._process.pid}) ended with code {self._process.wait()}")
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        answer: dict[str, Any] = json.loads(packet)
        return answer, descriptors
