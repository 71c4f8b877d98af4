"""The cluster that a lab emulates, as data: each rank's machine, and each machine's links to bridges.

Pure arithmetic: no process, no network. The links are a list and name their bridge, so a description with more bridges
(sites) or several links per machine needs no new words. Everything that a user can get wrong is checked here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_INTERFACES = 8
MOST_RANKS = 100_000
SMALLEST_BIT_RATE = 1_000_000
# The kernel's token bucket holds bytes/s in 32 bits: 34.3 Gbit/s.
LARGEST_BIT_RATE = 32_000_000_000
ORDERS = ("block", "round-robin")

_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_FIRST_SUBNET = 77  # of 10.77.0.0/16; each interface of a machine has its own
_MACHINES_PER_OCTET = 250


class LabError(RuntimeError):
    """The lab cannot do what was asked; the text names the culprit, the problem and the remedy."""


@dataclass(frozen=True)
class Place:
    """A rank's place in the cluster."""

    rank: int
    machine: int
    local_rank: int


@dataclass(frozen=True)
class Link:
    """A cable from a machine to a bridge. rate: bytes/s in each direction, None = unshaped."""

    machine: int
    bridge: str
    interface: str
    address: str
    prefix_length: int
    rate: int | None


def place_ranks(machines: Sequence[int], order: str) -> list[Place]:
    """Ranks to machines. machines: ranks per machine. Rank 0 always stands on machine 0.

    block fills machine after machine; round-robin deals to every machine that has room in turn.
    """
    if order not in ORDERS:
        raise LabError(f"order {order!r} is not known; it is one of {', '.join(ORDERS)}")
    if not machines or min(machines) < 1:
        raise LabError(f"machines of {list(machines)} ranks: there must be a machine, and every machine needs a rank")
    seats = [(local, machine) for machine, count in enumerate(machines) for local in range(count)]
    if order == "round-robin":
        seats.sort()
    return [Place(rank, machine, local) for rank, (local, machine) in enumerate(seats)]


def describe_links(
    bridges: Sequence[Sequence[str]], rates: Sequence[int | None], own_rates: Mapping[int, int | None]
) -> list[Link]:
    """The links of all machines, the first ones first. rates: of each interface of a machine, as in a Link.

    bridges: of each machine, one for each interface. Interfaces of one number share a subnet. own_rates: of all links
    of a machine, where they are others.
    """

    def link(machine: int, number: int) -> Link:
        rate = own_rates.get(machine, rates[number])
        return Link(
            machine, bridges[machine][number], interface_name(number), machine_address(machine, number), 16, rate
        )

    return [link(machine, number) for number in range(len(rates)) for machine in range(len(bridges))]


def host_lines(links: Sequence[Link]) -> str:
    """Names for the machines, as lines of a hosts file: also for how an IPv6 socket, such as torch's, sees them."""
    first = [link for link in links if link.interface == interface_name(0)]
    return "".join(f"{prefix}{link.address} machine{link.machine}\n" for link in first for prefix in ("", "::ffff:"))


def interface_name(number: int) -> str:
    return f"eth{number}"


def machine_address(machine: int, interface: int = 0) -> str:
    """The IPv4 address of a machine's interface, valid only inside the lab."""
    high, low = divmod(machine, _MACHINES_PER_OCTET)
    return f"10.{_FIRST_SUBNET + interface}.{high}.{low + 1}"


def parse_rate(text: str) -> int | None:
    """'1gbit', '2.5gbit', '100mbit' as bytes/s; 'none' as None."""
    if text == "none":
        return None
    bits = bits_per_second(text)
    if not SMALLEST_BIT_RATE <= bits <= LARGEST_BIT_RATE:
        raise LabError(f"rate {text} is out of bounds; a link can have 1mbit to 32gbit, or none for no limit")
    return round(bits / 8)


def bits_per_second(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", text.lower())
    bits = float(match[1]) * _BITS[match[2]] if match else 0.0
    if not bits:
        raise LabError(f"{text!r} is not a rate; write for instance 100mbit, 1gbit, 2.5gbit, or none for no limit")
    return bits


def parse_rates(text: str, interfaces: int) -> list[int | None]:
    """The rate of each interface of a machine, from one for all or from a list such as '1gbit,100mbit'."""
    if not 1 <= interfaces <= MOST_INTERFACES:
        raise LabError(f"{interfaces} interfaces per machine: there can be 1 to {MOST_INTERFACES}")
    rates = [parse_rate(part) for part in text.split(",")]
    if len(rates) == 1:
        rates *= interfaces
    if len(rates) != interfaces:
        raise LabError(f"rate {text}: {len(rates)} rates, but a machine has {interfaces} interface(s)")
    return rates


def parse_own_rates(text: str, machines: int) -> dict[int, int | None]:
    """'1=100mbit,3=none' as the rates of machines 1 and 3; empty without a text."""
    rates: dict[int, int | None] = {}
    for part in filter(None, text.split(",")):
        number, _, rate = part.partition("=")
        if not number.isdigit() or int(number) >= machines or int(number) in rates:
            raise LabError(f"machine rate {part!r}: write 1=100mbit, for a machine from 0 to {machines - 1}, each once")
        rates[int(number)] = parse_rate(rate)
    return rates


def parse_machines(ranks: str, machines: int | None) -> tuple[int, ...]:
    """Ranks per machine from '2' (on each of `machines`, default 1) or from a list such as '4,3,2'."""
    if re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", ranks) is None:
        raise LabError(f"{ranks!r} is not a number of ranks; write 2, or one number per machine such as 4,3,2")
    if machines is not None and machines > MOST_RANKS:
        raise LabError(f"{machines} machines are too many; give {MOST_RANKS} at most")
    counts = tuple(int(count) for count in ranks.split(","))
    if len(counts) == 1:
        counts *= 1 if machines is None else machines
    elif machines is not None and machines != len(counts):
        raise LabError(f"--machines {machines}, but --ranks {ranks} describes {len(counts)} machines; drop one")
    if not counts or min(counts) < 1:
        raise LabError(f"machines of {list(counts)} ranks: there must be a machine, and every machine needs a rank")
    if sum(counts) > MOST_RANKS:
        raise LabError(f"{sum(counts)} ranks are too many; give {MOST_RANKS} in all at most")
    return counts
