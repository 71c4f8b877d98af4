"""The speed of the network between machines, or sites: plain TCP streams, all of them and both directions at once.

An all-reduce uses the network in the same way, so its time is compared with this speed. On every machine the ranks with
the lowest places (as many as the smallest machine has) send to the rank with the same place on every other machine, one
connection per direction and for each interface that the job uses. Between sites all ranks do likewise, by the
interfaces of FAIRRING_SITE_IFNAME. Only bytes that reach the receiver in a window after the start count.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from operator import attrgetter

import torch.distributed as dist

from fairring.bench.job import Job, Placement
from fairring.config import Config
from fairring.facts import address_of
from fairring.interfaces import choose

SETTLE_SECONDS = 0.5  # not counted: TCP's start, and the burst that a shaper allows
SITE_SETTLE_SECONDS = 3.0  # the same between sites: TCP takes tens of round trips to find the rate of a long way
WINDOW_SECONDS = 1.0
TAIL_SECONDS = 0.3  # sending goes on past the window, because the ranks' clocks start apart
PATIENCE_SECONDS = 60.0
CHUNK = 256 * 1024
TOKEN_BYTES = 16


class LinkError(RuntimeError):
    """The machines can't be connected for the measurement."""


def measure_link(job: Job, between: str) -> dict[str, list[float]] | None:
    """Bytes/s of each "machine" or "site", in the order of their lowest ranks: "sent" to all others, and "received".

    Called by all ranks of the default group at once; all get the same result. None: there are not two of them. Raises
    LinkError if they can't reach each other.
    """
    end_of: Callable[[Placement], int | str] = attrgetter(between)
    of_ends: dict[int | str, list[Placement]] = {}
    for other in job.places:
        of_ends.setdefault(end_of(other), []).append(other)
    if len(of_ends) < 2:
        return None
    position = of_ends[end_of(job.place)].index(job.place)
    streams = min(map(len, of_ends.values()))
    peers = [ranks[position].rank for ranks in of_ends.values() if position < streams and job.place not in ranks]
    of_all: list[dict[int, float]] = [{}] * len(job.places)
    dist.all_gather_object(of_all, _exchange(job.place, peers, between == "site"))
    rate: dict[tuple[int | str, int | str], float] = defaultdict(float)
    for target, received in zip(job.places, of_all, strict=True):
        for source, speed in received.items():
            rate[end_of(job.places[source]), end_of(target)] += speed
    return {
        "sent": [sum(rate[end, other] for other in of_ends) for end in of_ends],
        "received": [sum(rate[other, end] for other in of_ends) for end in of_ends],
    }


def _exchange(place: Placement, peers: list[int], to_sites: bool) -> dict[int, float]:
    """Streams to and from the peers; returns the bytes/s that came from each, by rank."""
    addresses = _own_addresses(place, to_sites)
    with ExitStack() as open_doors:
        listeners = [
            open_doors.enter_context(socket.create_server((address, 0), backlog=len(peers) + 8))
            for address in addresses
        ]
        own = (secrets.token_bytes(TOKEN_BYTES), [listener.getsockname()[:2] for listener in listeners])
        doors = [own] * place.world
        dist.all_gather_object(doors, own)
        token = doors[0][0]  # keeps strangers out
        out = [
            _connect(place, address, peer, door, token)
            for peer in peers
            for address, door in zip(addresses, doors[peer][1], strict=True)
        ]
        into = [stream for listener in listeners for stream in _accept(listener, token, set(peers)).items()]
    dist.barrier()
    begin = time.monotonic() + (SITE_SETTLE_SECONDS if to_sites else SETTLE_SECONDS)
    end = begin + WINDOW_SECONDS
    with ThreadPoolExecutor(max_workers=max(1, len(out) + len(into))) as threads:
        leaving = [threads.submit(_send, stream, end + TAIL_SECONDS) for stream in out]
        arriving = [(rank, threads.submit(_receive, stream, begin, end)) for rank, stream in into]
    for sender in leaving:
        sender.result()  # raises what the thread raised
    received: dict[int, float] = defaultdict(float)
    for rank, count in arriving:
        received[rank] += count.result() / WINDOW_SECONDS
    dist.barrier()
    return received


def _own_addresses(place: Placement, to_sites: bool) -> list[str]:
    """The addresses of the interfaces that the job uses."""
    config = Config.from_environment()
    if to_sites and config.site_interfaces:
        return [address_of(name, "FAIRRING_SITE_IFNAME") for name in config.site_interfaces]
    return list(choose(config, *place.master).addresses)


def _connect(place: Placement, address: str, peer: int, door: tuple[str, int], token: bytes) -> socket.socket:
    try:
        stream = socket.create_connection(door, timeout=PATIENCE_SECONDS, source_address=(address, 0))
    except OSError as error:
        raise LinkError(
            f"rank {place.rank} can't connect to rank {peer} at {door[0]}:{door[1]}: {error}; does a firewall stand"
            " between the machines? If that is a loopback address, set MASTER_ADDR to one that other machines reach"
        ) from error
    stream.sendall(token + place.rank.to_bytes(4, "little"))
    return stream


def _accept(listener: socket.socket, token: bytes, expected: set[int]) -> dict[int, socket.socket]:
    """One stream from each expected rank, by rank; a connection without the token is turned away."""
    streams: dict[int, socket.socket] = {}
    listener.settimeout(PATIENCE_SECONDS)
    while expected - streams.keys():
        try:
            stream, _ = listener.accept()
        except TimeoutError as error:
            late = sorted(expected - streams.keys())
            raise LinkError(f"no stream came from ranks {late} in {PATIENCE_SECONDS:.0f} s") from error
        stream.settimeout(PATIENCE_SECONDS)
        hello = stream.recv(TOKEN_BYTES + 4, socket.MSG_WAITALL)
        rank = int.from_bytes(hello[TOKEN_BYTES:], "little")
        if hello[:TOKEN_BYTES] == token and rank in expected - streams.keys():
            streams[rank] = stream
        else:
            stream.close()
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
