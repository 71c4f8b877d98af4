"""The traffic of a wire, from the capture that qemu writes (pcap): RDMA and TCP, by case.

The guests mark where a case begins by a broadcast datagram to the discard port.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROCE_PORT, DISCARD_PORT = 4791, 9
MARK = b"fairring case "
# Of reliable connections, the opcodes that carry bytes past the receiver's program: writes, and answers to reads.
MOVING = (*range(0x06, 0x0C), *range(0x0D, 0x11))
TCP, UDP = 6, 17


@dataclass
class Traffic:
    """The traffic of one case on one wire, both ways."""

    moved_frames: int = 0  # of RoCEv2: RDMA writes and answers to reads
    moved_bytes: int = 0  # with the transport's headers
    other_frames: int = 0  # of RoCEv2: acknowledgements, sends
    tcp_bytes: int = 0  # payload

    def add(self, protocol: int, payload: bytes, length: int) -> None:
        """payload: what the IP packet carries, perhaps cut; length: of all of it, in bytes."""
        if protocol == TCP and len(payload) >= 20:
            self.tcp_bytes += length - (payload[12] >> 4) * 4
        elif protocol == UDP and len(payload) > 8 and struct.unpack_from("!H", payload, 2)[0] == ROCE_PORT:
            if payload[8] in MOVING:
                self.moved_frames += 1
                self.moved_bytes += length - 8
            else:
                self.other_frames += 1


def read(capture: Path) -> dict[str, Traffic]:
    """By case; what came before the first is under ""."""
    found = {"": Traffic()}
    current = found[""]
    for frame in _frames(capture.read_bytes()):
        for protocol, payload, length in _packet(frame):
            if protocol == UDP and payload[8:].startswith(MARK):
                current = found.setdefault(payload[8 + len(MARK) : length].decode(), Traffic())
            else:
                current.add(protocol, payload, length)
    return found


def _frames(data: bytes) -> Iterator[bytes]:
    place = 24
    while place + 16 <= len(data):
        (kept,) = struct.unpack_from("<I", data, place + 8)
        yield data[place + 16 : place + 16 + kept]
        place += 16 + kept


def _packet(frame: bytes) -> Iterator[tuple[int, bytes, int]]:
    """The protocol, the payload and its full length of an IP packet; nothing for other frames."""
    kind = struct.unpack_from("!H", frame, 12)[0] if len(frame) >= 14 else 0
    if kind == 0x0800 and len(frame) >= 34:
        header = (frame[14] & 15) * 4
        yield frame[23], frame[14 + header :], struct.unpack_from("!H", frame, 16)[0] - header
    elif kind == 0x86DD and len(frame) >= 54:
        yield frame[20], frame[54:], struct.unpack_from("!H", frame, 18)[0]
