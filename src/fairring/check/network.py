"""Interfaces of this machine, and the addresses that names stand for here. Standard library only."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairring import facts
from fairring.config import ConfigError
from fairring.interfaces import Choice

NETWORK = Path("/sys/class/net")
RDMA_DEVICES = Path("/sys/class/infiniband")
CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
NAME_SECONDS = 10.0


def describe(environment: Mapping[str, str], reached: Choice | None) -> dict[str, Any]:
    """The environment says where the master of a job is, if this is one. reached: how other ranks reach this one; None:
    the settings name no usable interface.
    """
    hostname, master = socket.gethostname(), environment.get("MASTER_ADDR", "")
    ways = (facts.address_towards(target, 0) for target in facts.ELSEWHERE)
    return {
        "hostname": hostname,
        "hostname_stands_for": resolve(hostname),
        "master": master,
        "master_stands_for": resolve(master) if master else None,
        "outward": next((way for way in ways if not is_loopback(way)), None),
        "reached": _reached(reached) if reached else None,
        "interfaces": [_interface(name) for _, name in socket.if_nameindex()],
        "rdma_devices": sorted(path.name for path in RDMA_DEVICES.iterdir()) if RDMA_DEVICES.exists() else [],
        "congestion_control": CONGESTION.read_text().strip() if CONGESTION.exists() else None,
    }


def resolve(name: str) -> dict[str, Any]:
    """The addresses that a name stands for, or why there are none. A silent name server is not waited for long."""
    found: dict[str, Any] = {"addresses": [], "error": f"no answer within {NAME_SECONDS:g} s"}

    def ask() -> None:
        try:
            rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            found.update(addresses=list(dict.fromkeys(str(row[4][0]) for row in rows)), error="")
        except OSError as error:
            found.update(error=str(error))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(NAME_SECONDS)
    return dict(found)


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _reached(choice: Choice) -> dict[str, Any]:
    used = [_interface(facts.interface_of(address)) for address in choice.addresses]
    addresses, passed_over = list(choice.addresses), list(choice.passed_over)
    return {"addresses": addresses, "interfaces": used, "by": choice.by, "passed_over": passed_over}


def _interface(name: str) -> dict[str, Any]:
    """speed: in Mbit/s; None if the driver does not say (virtual ones)."""
    home = NETWORK / name if name else Path("/nonexistent")
    speed, state = _number(home / "speed"), home / "operstate"
    try:
        address = facts.address_of(name)
    except ConfigError:
        address = ""
    return {
        "name": name,
        "address": address,
        "mtu": _number(home / "mtu"),
        "speed": speed if speed and speed > 0 else None,
        "state": state.read_text().strip() if state.exists() else "",
    }


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
