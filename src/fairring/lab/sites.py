"""The sites of a lab, as data: the machines of each, and the links between them. Pure arithmetic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fairring.lab.cluster import LabError, parse_rate

LONGEST_DELAY = 10.0  # seconds

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Sites:
    """machines: of each site, the first ones in the first. rate: bytes/s of a site's uplink, each way; None: unshaped.

    delay: seconds from one site to another, one way. Every interface of the machines has a network of its own between
    the sites, too, with that rate and delay.
    """

    machines: Sequence[int]
    rate: int | None = None
    delay: float = 0.0

    def of_machines(self) -> list[int]:
        """The site of each machine."""
        return [site for site, count in enumerate(self.machines) for _ in range(count)]


@dataclass(frozen=True)
class Uplink:
    """A cable from a site's bridge to the trunk that joins the sites; rate and delay as in Sites."""

    site: int
    bridge: str
    trunk: str
    rate: int | None
    delay: float


def describe_uplinks(sites: Sites, interfaces: int) -> list[Uplink]:
    """None if there is one site."""
    if len(sites.machines) < 2:
        return []
    return [
        Uplink(site, bridge_name(number, site, len(sites.machines)), f"wan{number}", sites.rate, sites.delay)
        for number in range(interfaces)
        for site in range(len(sites.machines))
    ]


def bridge_name(interface: int, site: int, sites: int) -> str:
    """The name of the bridge that connects one interface of each machine of a site."""
    return f"net{interface}" if sites == 1 else f"net{interface}site{site}"


def parse_sites(text: str, rate: str, delay: str, machines: int) -> Sites:
    """From '2' (that many with as many machines each) or '3,1' (machines of each), '100mbit' or 'none', '20ms'."""
    if re.fullmatch(r"\d+(,\d+)*", text) is None:
        raise LabError(f"{text!r} is not a number of sites; write 2, or the machines of each such as 3,1")
    counts = [int(count) for count in text.split(",")]
    if len(counts) == 1:
        if not 1 <= counts[0] <= machines or machines % counts[0]:
            raise LabError(f"{machines} machines are not the same number in {text} sites; write the machines of each")
        counts = [machines // counts[0]] * counts[0]
    if min(counts) < 1 or sum(counts) != machines:
        raise LabError(f"sites of {text} machines are {sum(counts)} in all, but the lab has {machines}")
    return Sites(counts, parse_rate(rate), _parse_delay(delay))


def _parse_delay(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", text)
    if match is None:
        raise LabError(f"{text!r} is not a delay; write for instance 20ms, 500us or 0ms")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > LONGEST_DELAY:
        raise LabError(f"delay {text} is out of bounds; it can be up to {LONGEST_DELAY:g} s")
    return seconds
