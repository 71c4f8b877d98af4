"""The addresses at which this rank listens: those of the interfaces that the settings name, else the way to the store.

TP_SOCKET_IFNAME is Fairring's own setting, so a name in it that is no interface is an error. GLOO_SOCKET_IFNAME and
NCCL_SOCKET_IFNAME were set for other libraries, which may not be used at all. So they are taken where the first is
unset, and passed over, with a warning, where they can't be.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from fairring import facts
from fairring.config import Config, ConfigError

_log = logging.getLogger("fairring")


@dataclass(frozen=True)
class Choice:
    """addresses: the first for all connections, further ones for lanes. by: the reason, "TP_SOCKET_IFNAME=eth0".

    passed_over: a sentence for each variable that can't be taken.
    """

    addresses: tuple[str, ...]
    by: str
    passed_over: tuple[str, ...] = ()


class _UnfitError(ValueError):
    """Why a variable can't be taken."""


def choose(config: Config, host: str, port: int) -> Choice:
    """host, port: the store's; no host: there is none. Raises ConfigError for names in TP_SOCKET_IFNAME alone."""
    if config.interfaces:
        named = ",".join(config.interfaces)
        return Choice(tuple(facts.address_of(name) for name in config.interfaces), f"TP_SOCKET_IFNAME={named}")
    way = facts.address_towards(host, port) if host else facts.LOOPBACK
    if facts.is_loopback(host):  # all ranks are on this machine
        return Choice((way,), f"the way to {host}")
    passed_over: list[str] = []
    for variable, value, find in (
        ("GLOO_SOCKET_IFNAME", ",".join(config.gloo_interfaces), _all_of),
        ("NCCL_SOCKET_IFNAME", config.nccl_interfaces, _first_of),
    ):
        if not value:
            continue
        try:
            addresses = find(value, way)
            _refuse_loopback(addresses, way)
            return Choice(addresses, f"{variable}={value}", tuple(passed_over))
        except _UnfitError as error:
            passed_over.append(f"{variable}={value} is passed over: {error}; TP_SOCKET_IFNAME goes before it")
    by = "the default route" if host in facts.ELSEWHERE else f"the way to {host}" if host else "no way to a store"
    return Choice((way,), by, tuple(passed_over))


def warn(choice: Choice) -> None:
    """Says what was passed over, once in a process."""
    for sentence in choice.passed_over:
        _warn_once(sentence)


@cache
def _warn_once(sentence: str) -> None:
    _log.warning("%s", sentence)


def _refuse_loopback(addresses: Sequence[str], way: str) -> None:
    """Other machines can't reach these, and a store that is reached over a network speaks for other machines."""
    if any(map(facts.is_loopback, addresses)) and not facts.is_loopback(way):
        raise _UnfitError("other machines can't reach a loopback interface")


def _all_of(value: str, _way: str) -> tuple[str, ...]:
    """Gloo's syntax: names of interfaces, with commas. All are used, as those of TP_SOCKET_IFNAME."""
    names = value.split(",")
    there = dict(_here())
    missing = [name for name in names if name not in there]
    if missing:
        raise _UnfitError(f"{', '.join(missing)}: no interface with an IP address here ({', '.join(there)} are)")
    return tuple(there[name] for name in names)


def _first_of(value: str, way: str) -> tuple[str, ...]:
    """NCCL's syntax: how names begin, with commas; ^ in front: all others; = in front: whole names.

    The interface of the way to the store, if it is one of these. Else the first of them, without loopback if others are
    there.
    """
    there = dict(_here())
    chosen = {name: address for name, address in there.items() if matches(value, name)}
    if not chosen:
        raise _UnfitError(f"no interface with an IP address here is meant by it ({', '.join(there)} are there)")
    if facts.interface_of(way) in chosen:
        return (way,)
    outward = [address for address in chosen.values() if not facts.is_loopback(address)]
    return ((outward or list(chosen.values()))[0],)


def matches(value: str, name: str) -> bool:
    """Whether NCCL_SOCKET_IFNAME means that interface. A port behind a name (eth0:5000) does not count."""
    others = value.startswith("^")
    text = value.removeprefix("^")
    whole = text.startswith("=")
    words = [word.strip().partition(":")[0] for word in text.removeprefix("=").split(",") if word.strip()]
    found = any(name == word if whole else name.startswith(word) for word in words)
    return found != others


def _here() -> Iterator[tuple[str, str]]:
    """The interfaces that have an address, in the system's order, with it."""
    for _, name in socket.if_nameindex():
        try:
            yield name, facts.address_of(name)
        except ConfigError:
            continue
