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
from multiprocessing.connection import Connection

Target = tuple[str, int] | str  # an address and port, or a name in the abstract unix namespace

_MOST_HELD = 300  # more than the acceptor lets be half-open
_SECONDS = 5
_REFUSED_PAUSE = 0.02  # until a word comes

_WORDS: dict[str, Callable[[], bytes]] = {
    "random bytes": lambda: os.urandom(300),
    "HTTP GET": lambda: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS hello": lambda: bytes.fromhex("16030100c8010000c40303") + os.urandom(32) + bytes(160),
    "huge lengths": lambda: struct.pack("<QQ", (1 << 64) - 1, 1 << 62) * 4096,
    "a greeting of nobody's": lambda: b"FAIRRING" + struct.pack("<IIII", 1, 1, 1, 0) + os.urandom(48),
    "half a greeting": lambda: b"FAIRRING" + struct.pack("<II", 1, 2),
}


def attack(stage: Connection, targets: list[Target], enough: int) -> None:
    """Says "enough" when every kind has come through to each target at least so many times."""
    done: Counter[tuple[str, int]] = Counter()
    held: list[socket.socket] = []
    told = False
    while not stage.poll(0 if done else _REFUSED_PAUSE):
        for number, target in enumerate(targets):
            for kind, make in _WORDS.items():
                done[kind, number] += _talk(target, make())
            for _ in range(20):
                done["connect and close", number] += _talk(target, b"")
            done["half open", number] += _hold(target, held)
        least = min(
            (done[kind, number] for kind in (*_WORDS, "half open") for number in range(len(targets))), default=0
        )
        if not told and least >= enough:
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


def _hold(target: Target, held: list[socket.socket]) -> bool:
    with suppress(OSError):
        held.append(_connect(target))
        if len(held) > _MOST_HELD:
            held.pop(0).close()
        return True
    return False
