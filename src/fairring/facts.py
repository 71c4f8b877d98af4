"""Facts about this rank that place it in the cluster: its machine, and the address at which other ranks reach it."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

from fairring import nvlink
from fairring.config import ConfigError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NETWORK_NAMESPACE = Path("/proc/self/ns/net")
IF_INET6 = Path("/proc/net/if_inet6")
LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback")
ELSEWHERE = ("192.0.2.1", "2001:db8::1")  # reserved for documentation: the route to them is the default route
SIOCGIFADDR = 0x8915  # linux/sockios.h


def machine() -> str:
    """Equal on two ranks if and only if they share a machine.

    All containers and network namespaces of a host share its boot id, but they can't reach each other's
    shared memory or unix sockets; the namespace's inode and the host name tell them apart.
    """
    return f"{socket.gethostname()}/{BOOT_ID.read_text().strip()}/{NETWORK_NAMESPACE.stat().st_ino}"


def network() -> str:
    """Equal on two ranks if and only if they share a network namespace, and so reach each other's loopback."""
    return f"{BOOT_ID.read_text().strip()}/{NETWORK_NAMESPACE.stat().st_ino}"


def device_machine(nccl_host: str | None) -> str:
    """Equal on two ranks if NCCL joins their GPUs without a network: in one NVLink domain, or else on one host.

    Hosts are told apart as in NCCL, so containers of a host are one machine if NCCL takes them for one.
    nccl_host: NCCL_HOSTID, which replaces the host's name and boot id.
    """
    return nvlink.domain() or nccl_host or f"{socket.gethostname()}/{BOOT_ID.read_text().strip()}"


def address_towards(host: str, port: int) -> str:
    """The local IP address from which this machine reaches a host: that of the interface that routing chooses.

    If the host is this machine under a name that others know too, it is the address of the default route: the name may
    stand for a loopback address here (Debian writes 127.0.1.1 into /etc/hosts), at which no other machine reaches us.
    Loopback if the host's name is unknown here or there is no route to it. No packet is sent.
    """
    address = _way_to(host, port)
    if address is None or not is_loopback(address) or is_loopback(host):
        return address or LOOPBACK
    outward = (_way_to(target, port) for target in ELSEWHERE)
    return next((found for found in outward if found and not is_loopback(found)), address)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.rstrip(".").lower() in LOOPBACK_NAMES


def _way_to(host: str, port: int) -> str | None:
    try:
        targets = socket.getaddrinfo(host, port or 1, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, target in targets:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(target)
                return _text(family, probe.getsockname())
        except OSError:
            continue
    return None


def _text(family: int, name: tuple[str, int] | tuple[str, int, int, int]) -> str:
    """A socket's own address, with the interface if an IPv6 address has no meaning without it: "fe80::1%eth0"."""
    host = name[0].partition("%")[0]
    if family == socket.AF_INET6 and len(name) == 4 and ipaddress.ip_address(host).is_link_local:
        return f"{host}%{socket.if_indextoname(name[3])}"
    return host


def address_of(interface: str, variable: str = "TP_SOCKET_IFNAME") -> str:
    """The first IPv4 address of a network interface, else its first IPv6 one.

    variable: the variable that names it. Raises ConfigError, with the present interfaces, if it does not exist or has
    no address.
    """
    return _ipv4_of(interface) or _ipv6_of(interface, variable)


def interface_of(address: str) -> str:
    """The name of the interface with that IP address; empty if there is none."""
    host, _, scope = address.partition("%")
    for _, name in socket.if_nameindex():
        if scope in ("", name) and (_ipv4_of(name) == host or host in map(str, _ipv6_addresses_of(name))):
            return name
    return ""


def _ipv4_of(interface: str) -> str | None:
    """The first one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            return socket.inet_ntoa(fcntl.ioctl(probe, SIOCGIFADDR, request)[20:24])
        except OSError:
            return None


def _ipv6_addresses_of(interface: str) -> list[ipaddress.IPv6Address]:
    """Those that have a meaning without the interface first."""
    lines = IF_INET6.read_text().splitlines() if IF_INET6.exists() else []
    found = [fields[0] for fields in map(str.split, lines) if fields[5] == interface]
    return sorted((ipaddress.IPv6Address(bytes.fromhex(text)) for text in found), key=lambda a: a.is_link_local)


def _ipv6_of(interface: str, variable: str) -> str:
    addresses = _ipv6_addresses_of(interface)
    if addresses:
        return f"{addresses[0]}%{interface}" if addresses[0].is_link_local else str(addresses[0])
    there = ", ".join(name for _, name in socket.if_nameindex())
    raise ConfigError(f"{variable}={interface!r} is no interface with an IP address here; there are: {there}")
