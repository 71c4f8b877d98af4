"""The address that a rank tells the others, whatever the name of the master stands for here."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from fairring import facts

DEFAULT_ROUTE = "10.1.2.3"


class Probe:
    """A UDP socket of a machine with one interface, where the names of MASTER stand for 127.0.1.1."""

    def __init__(self, *_kind: int) -> None:
        self.target = ""

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def connect(self, target: tuple[str, int]) -> None:
        self.target = target[0]

    def getsockname(self) -> tuple[str, int]:
        return (self.target if self.target.startswith("127.") else DEFAULT_ROUTE, 1)


@pytest.fixture
def debian(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        address = {"master": "127.0.1.1", "localhost": "127.0.0.1"}.get(host, host)
        return [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "socket", Probe)


@pytest.mark.usefixtures("debian")
@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("master", DEFAULT_ROUTE),  # its own name: others must reach it
        ("localhost", "127.0.0.1"),  # asked for
        ("127.0.0.5", "127.0.0.5"),
        ("10.9.9.9", DEFAULT_ROUTE),
    ],
)
def test_the_address_is_one_that_others_reach(host: str, address: str) -> None:
    assert facts.address_towards(host, 29500) == address


def test_without_any_way_it_is_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror("unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert facts.address_towards("master", 29500) == facts.LOOPBACK
