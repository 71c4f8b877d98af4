"""The lab's network: a hub namespace with bridges, a namespace per machine, shaped veth pairs between them.

Owned by the keeper's process. Nothing has a name outside: namespaces are held by descriptors alone and the hub is a
namespace too, so all of it vanishes with the last process that holds it, and labs cannot collide.

pyroute2 instead of the ip and tc programs: they need not be installed, one process does all in 50 ms, and a netlink
socket goes on working in the namespace that it was opened in, so no step has to switch back and forth.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence

from pyroute2 import IPRoute
from pyroute2.netlink import nlmsg
from pyroute2.netlink.rtnl import RTMGRP_LINK

from fairring.lab import namespaces
from fairring.lab.cluster import Link
from fairring.lab.shaping import shape
from fairring.lab.sites import Uplink
from fairring.lab.trunks import Trunks

_OWN_NAMESPACE = "/proc/self/ns/net"
_LOOPBACK = 1
_CARRIER_SECONDS = 5
_LONGEST_NEWS = 65536


class Network:
    """Made complete by its constructor, which raises OSError or pyroute2's NetlinkError if that isn't permitted."""

    def __init__(self, machines: int, links: Sequence[Link]) -> None:
        self.user = self._enter_hub()
        hub = os.open(_OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
        self._hub = IPRoute()
        self.machines: list[int] = []
        self._routes: list[IPRoute] = []
        for _ in range(machines):
            namespaces.unshare(namespaces.NET)
            self.machines.append(os.open(_OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC))
            self._routes.append(IPRoute())
            self._routes[-1].link("set", index=_LOOPBACK, state="up")
        namespaces.enter(hub, namespaces.NET)
        self._ports = self._connect(links)

    def set_link(self, machine: int, up: bool, interface: int | None = None) -> None:
        """Pulls or plugs the machine's cables at the bridge's end: the machine keeps its addresses, as with a cable.

        interface: the number of the only one that is meant.
        """
        ports = self._ports[machine] if interface is None else [self._ports[machine][interface]]
        for port in ports:
            self._hub.link("set", index=port, state="up" if up else "down")
        if up:
            self._await_carrier(ports)

    def join_sites(self, uplinks: Sequence[Uplink]) -> None:
        """Raises as the constructor does."""
        self._trunks = Trunks(self._hub, uplinks)
        self._await_carrier([port for ports in self._trunks.ports.values() for port in ports])

    def set_uplink(self, site: int, up: bool) -> None:
        """Pulls or plugs the site's cables to the others."""
        for port in self._trunks.ports[site]:
            self._hub.link("set", index=port, state="up" if up else "down")
        if up:
            self._await_carrier(self._trunks.ports[site])

    @staticmethod
    def _enter_hub() -> int | None:
        """Returns the descriptor of the user namespace that was needed; None for root."""
        try:
            namespaces.unshare(namespaces.NET)
        except PermissionError:
            namespaces.unshare_user_and_net()
            return os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        return None

    def _connect(self, links: Sequence[Link]) -> dict[int, list[int]]:
        """Returns the bridge ports of every machine, in the order of its interfaces."""
        bridges = {name: self._make_bridge(name) for name in sorted({link.bridge for link in links})}
        ports: dict[int, list[int]] = {}
        for number, link in enumerate(links):
            port = self._make_pair(f"port{number}", link)
            self._hub.link("set", index=port, master=bridges[link.bridge], state="up")
            ports.setdefault(link.machine, []).append(port)
        self._await_carrier([port for group in ports.values() for port in group])
        return ports

    def _make_bridge(self, name: str) -> int:
        self._hub.link("add", ifname=name, kind="bridge", state="up")
        return int(self._hub.link_lookup(ifname=name)[0])

    def _make_pair(self, port_name: str, link: Link) -> int:
        far_end = {"ifname": link.interface, "net_ns_fd": self.machines[link.machine]}
        self._hub.link("add", ifname=port_name, kind="veth", peer=far_end)
        port = int(self._hub.link_lookup(ifname=port_name)[0])
        machine = self._routes[link.machine]
        interface = machine.link_lookup(ifname=link.interface)[0]
        machine.addr("add", index=interface, address=link.address, prefixlen=link.prefix_length)
        if link.rate is not None:
            shape(self._hub, port, link.rate)
            shape(machine, interface, link.rate)
        machine.link("set", index=interface, state="up")
        return port

    def _await_carrier(self, ports: Sequence[int]) -> None:
        """Until a port's carrier is up the kernel drops packets: the first connection would stall for a second."""
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as news:
            news.bind((0, RTMGRP_LINK))
            news.settimeout(_CARRIER_SECONDS)
            while not all(_is_up(self._hub.get_links(port)[0]) for port in ports):
                try:
                    news.recv(_LONGEST_NEWS)
                except TimeoutError as error:
                    raise OSError(
                        errno.ETIMEDOUT, f"no carrier {_CARRIER_SECONDS} s after a link was set up"
                    ) from error


def _is_up(message: nlmsg) -> bool:
    return bool(message.get_attr("IFLA_OPERSTATE") == "UP")
