"""The speed of the network between machines, or sites: plain TCP streams, all of them and both directions at once.

An all-reduce uses the network in the same way, so its time is compared with this speed. On every machine the ranks with
the lowest places (as many as the smallest machine has) send to the rank with the same place on every other machine, one
connection per direction and for each interface that TP_SOCKET_IFNAME names. Between sites all ranks do likewise, by the
interfaces of FAIRRING_SITE_IFNAME. Only bytes that reach the receiver in a window after the start count.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from operator import attrgetter

import torch.distributed as dist

from fairring.bench.placement import Placement
from fairring.config import Config
from fairring.facts import address_of

SETTLE_SECONDS = 0.5  # not counted: TCP's start, and the burst that a shaper allows
SITE_SETTLE_SECONDS = 3.0  # the same between sites: TCP takes tens of round trips to find the rate of a long way
TAIL_SECONDS = 0.3  # sending goes on past the window, because the ranks' clocks start apart
PATIENCE_SECONDS = 60.0
CHUNK = 256 * 1024
TOKEN_BYTES = 16


class LinkError(RuntimeError):
    """The machines can't be connected for the measurement."""


@dataclass(frozen=True)
class LinkSpeed:
    """Bytes/s of each machine or site, in the order of their lowest ranks: to all others, and from all others."""

    sent: list[float]
    received: list[float]

    @property
    def slowest(self) -> float:
        """The slowest direction of the slowest."""
        return min(self.sent + self.received)


@dataclass(frozen=True)
class Door:
    """A rank's listener for streams, on one interface; the token keeps strangers out."""

    address: str
    port: int
    token: bytes


def measure_link(
    place: Placement,
    places: list[Placement],
    between: str = "machine",
    seconds: float = 1.0,
) -> LinkSpeed:
    """Called by all ranks of the default group at once; all get the same result. seconds: length of the window.

    between: "machine" or "site". Raises LinkError if there are fewer than 2 or they can't reach each other.
    """
    end_of: Callable[[Placement], int | str] = attrgetter(between)
    of_ends: dict[int | str, list[Placement]] = {}
    for other in places:
        of_ends.setdefault(end_of(other), []).append(other)
    if len(of_ends) < 2:
        raise LinkError(f"a link needs 2 {between}s, there is {len(of_ends)}")
    position = of_ends[end_of(place)].index(place)
    streams = min(map(len, of_ends.values()))
    peers = [ranks[position] for ranks in of_ends.values() if position < streams and place not in ranks]
    by_rank = _exchange(place, peers, between == "site", seconds)
    of_all: list[dict[int, float]] = [{}] * len(places)
    dist.all_gather_object(of_all, by_rank)
    rate: dict[tuple[int | str, int | str], float] = defaultdict(float)
    for target, received in zip(places, of_all, strict=True):
        for source, speed in received.items():
            rate[end_of(places[source]), end_of(target)] += speed
    return LinkSpeed(
        sent=[sum(rate[end, other] for other in of_ends) for end in of_ends],
        received=[sum(rate[other, end] for other in of_ends) for end in of_ends],
    )


def _exchange(place: Placement, peers: list[Placement], to_sites: bool, seconds: float) -> dict[int, float]:
    """Streams to and from the peers; returns the bytes/s that came from each, by rank."""
    addresses, token = _own_addresses(place, to_sites), secrets.token_bytes(TOKEN_BYTES)
    with ExitStack() as open_doors:
        listeners = [
            open_doors.enter_context(socket.create_server((address, 0), backlog=len(peers) + 8))
            for address in addresses
        ]
        own = [
            Door(address, listener.getsockname()[1], token)
            for address, listener in zip(addresses, listeners, strict=True)
        ]
        doors: list[list[Door]] = [own] * place.world
        dist.all_gather_object(doors, own)
        _refuse_mixed_loopback([of_rank[0] for of_rank in doors])
        out = [
            _connect(place, address, peer, door)
            for peer in peers
            for address, door in zip(addresses, doors[peer.rank], strict=True)
        ]
        into = [
            arrived
            for listener in listeners
            for arrived in _accept(listener, token, {peer.rank: peer for peer in peers}).items()
        ]
    dist.barrier()
    begin = time.monotonic() + (SITE_SETTLE_SECONDS if to_sites else SETTLE_SECONDS)
    with ThreadPoolExecutor(max_workers=max(1, len(out) + len(into))) as threads:
        leaving = [threads.submit(_send, stream, begin + seconds + TAIL_SECONDS) for stream in out]
        arriving = [(rank, threads.submit(_receive, stream, begin, begin + seconds)) for rank, stream in into]
    for sender in leaving:
        sender.result()  # raises what the thread raised
    received: dict[int, float] = defaultdict(float)
    for rank, count in arriving:
        received[rank] += count.result() / seconds
    dist.barrier()
    return received


def _own_addresses(place: Placement, to_sites: bool) -> list[str]:
    """The addresses of the interfaces that the job uses."""
    config = Config.from_environment()
    names = config.site_interfaces if to_sites and config.site_interfaces else config.interfaces
    return [address_of(name) for name in names] or [own_address(place)]


def own_address(place: Placement) -> str:
    """The address by which this machine reaches the store; the other machines reach it too."""
    family, kind, protocol, _, target = socket.getaddrinfo(*place.master, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)  # of a datagram socket: chooses the route, sends nothing
        return str(probe.getsockname()[0])


def _refuse_mixed_loopback(doors: list[Door]) -> None:
    loopback = [rank for rank, door in enumerate(doors) if ipaddress.ip_address(door.address).is_loopback]
    if 0 < len(loopback) < len(doors):
        raise LinkError(
            f"ranks {', '.join(map(str, loopback))} reach the store by loopback ({doors[loopback[0]].address}), others"
            " don't: set MASTER_ADDR to the address that the other machines use, not to a name that means loopback here"
        )


def _connect(place: Placement, address: str, peer: Placement, door: Door) -> socket.socket:
    try:
        stream = socket.create_connection(
            (door.address, door.port), timeout=PATIENCE_SECONDS, source_address=(address, 0)
        )
    except OSError as error:
        raise LinkError(
            f"rank {place.rank} can't connect to rank {peer.rank} at {door.address}:{door.port}: {error};"
            " does a firewall stand between the machines?"
        ) from error
    stream.sendall(door.token + place.rank.to_bytes(4, "little"))
    return stream


def _accept(listener: socket.socket, token: bytes, expected: dict[int, Placement]) -> dict[int, socket.socket]:
    """One stream from each expected rank, by rank; a connection without the token is turned away."""
    streams: dict[int, socket.socket] = {}
    listener.settimeout(PATIENCE_SECONDS)
    while expected:
        try:
            stream, _ = listener.accept()
        except TimeoutError as error:
            raise LinkError(f"no stream came from ranks {sorted(expected)} in {PATIENCE_SECONDS:.0f} s") from error
        stream.settimeout(PATIENCE_SECONDS)
        hello = stream.recv(TOKEN_BYTES + 4, socket.MSG_WAITALL)
        peer = (
            expected.pop(int.from_bytes(hello[TOKEN_BYTES:], "little"), None) if hello[:TOKEN_BYTES] == token else None
        )
        if peer is None:
            stream.close()
        else:
            streams[peer.rank] = stream
    return streams


def _send(stream: socket.socket, until: float) -> None:
    chunk = bytes(CHUNK)
    with stream:
        while time.monotonic() < until:
            stream.sendall(chunk)


def _receive(stream: socket.socket, begin: float, end: float) -> int:
    """Bytes that arrive between begin and end (time.monotonic); reads on until the sender has closed."""
    buffer = bytearray(CHUNK)
    count = 0
    with stream:
        while arrived := stream.recv_into(buffer):
            if begin <= time.monotonic() < end:
                count += arrived
    return count
