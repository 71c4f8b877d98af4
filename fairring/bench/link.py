"""What the network between machines can do: plain TCP streams, all machines and both directions at once.

That is how an all-reduce uses it, so this is the speed that its time is compared with. On every machine the ranks with
the lowest local ranks (as many as the smallest machine has) send to the rank with the same local rank on every other
machine, one connection per direction, and for each interface that TP_SOCKET_IFNAME names. What counts is what arrives
in a window after the start, at the receiver, over all interfaces.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import torch.distributed as dist

from fairring.bench.placement import Placement
from fairring.config import Config
from fairring.facts import address_of

SETTLE_SECONDS = 0.5  # not counted: TCP's start, and the burst that a shaper lets through
TAIL_SECONDS = 0.3  # sending goes on past the window, as the ranks' clocks start apart
PATIENCE_SECONDS = 60.0
CHUNK = 256 * 1024
TOKEN_BYTES = 16


class LinkError(RuntimeError):
    """The machines can't be connected for the measurement."""


@dataclass(frozen=True)
class LinkSpeed:
    """Bytes/s of each machine, by machine number: sent to all others, and received from all others."""

    sent: list[float]
    received: list[float]

    @property
    def slowest(self) -> float:
        """The slowest direction of the slowest machine."""
        return min(self.sent + self.received)


@dataclass(frozen=True)
class Door:
    """Where a rank accepts streams, on one interface; the token keeps strangers out."""

    address: str
    port: int
    token: bytes


def measure_link(place: Placement, places: list[Placement], seconds: float = 1.0) -> LinkSpeed:
    """Called by all ranks of the default group at once; all get the same result. seconds: length of the window.

    Raises LinkError if the machines are fewer than 2 or can't reach each other.
    """
    machines = sorted({other.machine for other in places})
    if len(machines) < 2:
        raise LinkError(f"a link needs 2 machines, there is {len(machines)}")
    streams = min(other.local_world for other in places)
    peers = [
        other
        for other in places
        if place.local_rank < streams and other.local_rank == place.local_rank and other.machine != place.machine
    ]
    received = _exchange(place, peers, seconds)
    of_all: list[dict[int, float]] = [{}] * len(places)
    dist.all_gather_object(of_all, received)
    rate = {
        (source, target): sum(
            other.get(source, 0.0) for other, at in zip(of_all, places, strict=True) if at.machine == target
        )
        for source in machines
        for target in machines
    }
    return LinkSpeed(
        sent=[sum(rate[machine, other] for other in machines) for machine in machines],
        received=[sum(rate[other, machine] for other in machines) for machine in machines],
    )


def _exchange(place: Placement, peers: list[Placement], seconds: float) -> dict[int, float]:
    """Streams to and from the peers; returns bytes/s that came from each machine."""
    addresses, token = _own_addresses(place), secrets.token_bytes(TOKEN_BYTES)
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
    begin = time.monotonic() + SETTLE_SECONDS
    with ThreadPoolExecutor(max_workers=max(1, len(out) + len(into))) as threads:
        leaving = [threads.submit(_send, stream, begin + seconds + TAIL_SECONDS) for stream in out]
        arriving = [(machine, threads.submit(_receive, stream, begin, begin + seconds)) for machine, stream in into]
    for sender in leaving:
        sender.result()  # raises what the thread raised
    received: dict[int, float] = defaultdict(float)
    for machine, count in arriving:
        received[machine] += count.result() / seconds
    dist.barrier()
    return received


def _own_addresses(place: Placement) -> list[str]:
    """Of the interfaces that the job uses."""
    names = Config.from_environment().interfaces
    return [address_of(name) for name in names] or [own_address(place)]


def own_address(place: Placement) -> str:
    """The address by which this machine reaches the store, which the other machines reach as well."""
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
    """One stream from each expected rank, by machine; who does not know the token is turned away."""
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
            streams[peer.machine] = stream
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
