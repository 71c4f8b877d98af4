"""A stranger: connects again and again to whatever listens and says what does not belong there, until told to end.

Runs as a child of a nursery. It begins before anybody listens; refused connections are tried again.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection

Target = tuple[str, int] | str  # an address and port, or a name in the abstract unix namespace

_MOST_HELD = 300  # more than the acceptor lets be half-open
_SECONDS = 5
_REFUSED_PAUSE = 0.02  # until a word comes
_MAGIC = b"FAIRRING"
_GREETING_BYTES, _PROOF_BYTES = 76, 32
_NOBODY = b"\xee" * 16  # the group of greetings that are made up
_ALL_PROTOCOLS = 3


def _greeting(_number: int = 0) -> bytes:
    return _MAGIC + struct.pack("<IIIII", 2, 1, 0, 1, 0) + _NOBODY + os.urandom(32)


# The bytes to send, by the number of the connection.
_WORDS: dict[str, Callable[[int], bytes]] = {
    "random bytes": lambda _: os.urandom(300),
    "HTTP GET": lambda _: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS hello": lambda _: bytes.fromhex("16030100c8010000c40303") + os.urandom(32) + bytes(160),
    "huge lengths": lambda _: struct.pack("<QQ", (1 << 64) - 1, 1 << 62) * 4096,
    "a greeting of nobody's": _greeting,
    "a greeting cut short": lambda number: _greeting()[: 1 + number % (_GREETING_BYTES - 1)],
    "nothing": lambda _: b"",
}
_HELD: dict[str, Callable[[int], bytes]] = {
    "nothing, and stays": lambda _: b"",
    "half a greeting, and stays": lambda number: _greeting()[: 1 + number % (_GREETING_BYTES - 1)],
}


class Recorder:
    """Listens to what passes this machine's interfaces for a rank's way through the challenge."""

    def __init__(self) -> None:
        self.words = b""
        self._from: bytes | None = None
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self._socket.setblocking(False)

    def listen(self) -> None:
        """Takes what has passed since; once there is a greeting and its proof, no more."""
        with suppress(BlockingIOError):
            while len(self.words) < _GREETING_BYTES + _PROOF_BYTES:
                self._take(self._socket.recv(1 << 16))

    def _take(self, frame: bytes) -> None:
        packet = frame[14:]
        if frame[12:14] != b"\x08\x00" or packet[9] != socket.IPPROTO_TCP:
            return
        segment = packet[4 * (packet[0] & 15) : int.from_bytes(packet[2:4], "big")]
        way, payload = packet[12:20] + segment[:4], segment[4 * (segment[12] >> 4) :]
        greets = len(payload) == _GREETING_BYTES and payload.startswith(_MAGIC) and payload[28:44] != _NOBODY
        if greets and self._from is None:
            self._from, self.words = way, payload
        elif way == self._from and len(payload) == _PROOF_BYTES:
            self.words += payload


def attack(stage: Connection, targets: list[Target], enough: int, records: bool) -> None:
    """Says "enough" after so many connections, and "over" at the end, each with how many there were of every kind."""
    done: Counter[str] = Counter()
    held: list[socket.socket] = []
    recorder = Recorder() if records else None
    kinds = [*_WORDS, *_HELD, *(["a replayed greeting and proof"] if records else [])]
    told = connected = False
    for number in count():
        if stage.poll(0 if connected else _REFUSED_PAUSE):
            break
        kind, target = kinds[number % len(kinds)], targets[number // len(kinds) % len(targets)]
        if kind in _HELD:
            connected = _hold(target, _HELD[kind](number), held)
        elif kind in _WORDS:
            connected = _talk(target, _WORDS[kind](number))
        elif recorder is not None:
            recorder.listen()
            connected = bool(recorder.words) and _talk(target, recorder.words)
        done[kind] += connected
        if not told and done.total() >= enough and all(done.values()):
            told = True
            stage.send(("enough", dict(done)))
    for one in held:
        one.close()
    stage.send(("over", dict(done)))


def _connect(target: Target) -> socket.socket:
    if isinstance(target, str):
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(_SECONDS)
        peer.connect("\0" + target)
        return peer
    return socket.create_connection(target, _SECONDS)


def _talk(target: Target, words: bytes) -> bool:
    """Whether a connection was made; what becomes of it is the other side's business."""
    try:
        peer = _connect(target)
    except OSError:
        return False
    with peer, suppress(OSError):
        peer.sendall(words)
        if words:
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(4096):
                pass
    return True


def _hold(target: Target, words: bytes, held: list[socket.socket]) -> bool:
    with suppress(OSError):
        held.append(_connect(target))
        held[-1].sendall(words)
        if len(held) > _MOST_HELD:
            held.pop(0).close()
        return True
    return False
