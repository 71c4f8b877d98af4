"""The keeper: a process beside the lab that holds the namespaces and, when the lab dies, kills the lab's processes.

It lives until the lab's process ends (a pidfd: precise even where a forked child of the lab still holds the socket)
or the lab closes the socket. The lab may be killed with -9 at any moment: the kernel then frees the namespaces along
with the keeper and the ranks. Messages are JSON, one per packet; namespaces are handed over as descriptors.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pyroute2 import NetlinkError

from fairring.lab.cluster import Link
from fairring.lab.network import Network
from fairring.lab.sites import Uplink

_LONGEST_MESSAGE = 65536


def main(arguments: Sequence[str]) -> int:
    """arguments: the socket's descriptor, the lab's process id, the cables as JSON (null: no network is wanted)."""
    channel = socket.socket(fileno=int(arguments[0]))
    lab = os.pidfd_open(int(arguments[1]))
    if os.getppid() != int(arguments[1]):
        return 0
    cables = json.loads(arguments[2])
    keeper = _Keeper(channel)
    if cables is None or keeper.make_network(
        [Link(**link) for link in cables["links"]], [Uplink(**uplink) for uplink in cables["uplinks"]]
    ):
        keeper.serve(lab)
    return 0


class _Keeper:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._network: Network | None = None
        self._groups: set[int] = set()

    def make_network(self, links: Sequence[Link], uplinks: Sequence[Uplink]) -> bool:
        """Reports the namespaces, or why there are none, to the lab."""
        try:
            self._network = Network(1 + max(link.machine for link in links), links)
            self._network.join_sites(uplinks)
        except (OSError, NetlinkError) as error:
            self._send({"error": _describe(error)})
            return False
        user = [] if self._network.user is None else [self._network.user]
        self._send({"user": bool(user)}, user)
        for descriptor in self._network.machines:
            self._send({}, [descriptor])
        return True

    def serve(self, lab: int) -> None:
        """Runs until the lab is gone; processes that the lab left running die then."""
        poll = select.poll()
        poll.register(lab, select.POLLIN)
        poll.register(self._channel, select.POLLIN)
        while all(descriptor != lab for descriptor, _ in poll.poll()):
            packet = self._channel.recv(_LONGEST_MESSAGE)
            if not packet:
                break
            self._obey(json.loads(packet))
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def _obey(self, message: dict[str, Any]) -> None:
        if "guard" in message:
            self._groups.add(message["guard"])
        elif "release" in message:
            self._groups.discard(message["release"])
        elif self._network is not None:
            try:
                if "site" in message:
                    self._network.set_uplink(message["site"], message["up"])
                else:
                    self._network.set_link(message["machine"], message["up"], message["interface"])
                self._send({})
            except (OSError, NetlinkError) as error:
                self._send({"error": _describe(error)})

    def _send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        # The lab may be gone already; serve() notices that.
        with suppress(BrokenPipeError):
            socket.send_fds(self._channel, [json.dumps(message).encode()], list(descriptors))


def _describe(error: OSError | NetlinkError) -> str:
    if isinstance(error, NetlinkError):
        return f"the kernel refused a link, its bridge or its shaping: {error.args[-1]}"
    return error.strerror or str(error)
