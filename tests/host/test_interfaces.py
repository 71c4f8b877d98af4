"""The addresses at which a rank listens, by the variables of three libraries."""

from __future__ import annotations

import socket

import pytest

from fairring import facts, interfaces
from fairring.config import Config, ConfigError
from fairring.interfaces import Choice, matches

ADDRESSES = {"lo": "127.0.0.1", "docker0": "172.17.0.1", "eth0": "10.0.0.1", "eth1": "10.1.0.1", "ib0": "10.2.0.1"}
MASTER = "10.1.0.9"  # reached over eth1


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with these interfaces, and one without an address."""

    def address_of(name: str, variable: str = "TP_SOCKET_IFNAME") -> str:
        if name not in ADDRESSES:
            raise ConfigError(f"{variable}={name}")
        return ADDRESSES[name]

    names = {address: name for name, address in ADDRESSES.items()}
    monkeypatch.setattr(facts, "address_of", address_of)
    monkeypatch.setattr(facts, "interface_of", lambda address: names.get(address, ""))
    monkeypatch.setattr(facts, "address_towards", lambda host, _: {MASTER: "10.1.0.1"}.get(host, "127.0.0.1"))
    monkeypatch.setattr(socket, "if_nameindex", lambda: list(enumerate([*ADDRESSES, "wlan0"])))


def choose(host: str = MASTER, **variables: str) -> Choice:
    return interfaces.choose(Config.from_environment(variables), host, 29500)


@pytest.mark.parametrize(
    ("variables", "addresses"),
    [
        ({}, "10.1.0.1"),
        ({"TP_SOCKET_IFNAME": "ib0,eth0", "GLOO_SOCKET_IFNAME": "eth0"}, "10.2.0.1 10.0.0.1"),
        ({"TP_SOCKET_IFNAME": "lo"}, "127.0.0.1"),
        ({"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "ib0"}, "10.0.0.1"),
        ({"GLOO_SOCKET_IFNAME": "ib0, eth0"}, "10.2.0.1 10.0.0.1"),
        ({"NCCL_SOCKET_IFNAME": "ib"}, "10.2.0.1"),
        ({"NCCL_SOCKET_IFNAME": "eth"}, "10.1.0.1"),
        ({"NCCL_SOCKET_IFNAME": "=eth0,ib0"}, "10.0.0.1"),
        ({"NCCL_SOCKET_IFNAME": "^docker0"}, "10.1.0.1"),
        ({"NCCL_SOCKET_IFNAME": "^docker,eth"}, "10.2.0.1"),
        ({"NCCL_SOCKET_IFNAME": "^=docker0,eth1"}, "10.0.0.1"),
    ],
    ids=lambda value: " ".join(f"{name}={text}" for name, text in value.items()) if isinstance(value, dict) else None,
)
def test_the_first_variable_that_is_set_chooses(variables: dict[str, str], addresses: str) -> None:
    found = choose(**variables)
    assert " ".join(found.addresses) == addresses
    assert found.by == (next((f"{name}={value}" for name, value in variables.items()), f"the way to {MASTER}")).replace(
        ", ", ","
    )
    assert not found.passed_over


@pytest.mark.parametrize(
    ("value", "words"),
    [("eth7", "eth7: no interface"), ("eth0,wlan0", "wlan0: no interface"), ("lo", "can't reach a loopback interface")],
)
@pytest.mark.parametrize("variable", ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"])
def test_a_borrowed_one_that_cannot_be_taken_is_passed_over(variable: str, value: str, words: str) -> None:
    if variable.startswith("NCCL"):
        value, words = f"={value.split(',')[-1]}", words.replace(f"{value.split(',')[-1]}: ", "")
    found = choose(**{variable: value})
    assert (found.addresses, found.by) == (("10.1.0.1",), f"the way to {MASTER}")
    (told,) = found.passed_over
    assert told.startswith(f"{variable}={value} is passed over: ")
    assert words in told


def test_if_gloos_is_passed_over_nccls_is_taken() -> None:
    found = choose(GLOO_SOCKET_IFNAME="eth7", NCCL_SOCKET_IFNAME="ib")
    assert (found.addresses, found.by, len(found.passed_over)) == (("10.2.0.1",), "NCCL_SOCKET_IFNAME=ib", 1)


def test_our_own_that_is_none_is_an_error() -> None:
    with pytest.raises(ConfigError, match="TP_SOCKET_IFNAME=eth7"):
        choose(TP_SOCKET_IFNAME="eth7")


def test_a_store_on_loopback_needs_no_other_interface() -> None:
    assert choose("localhost", GLOO_SOCKET_IFNAME="eth7", NCCL_SOCKET_IFNAME="eth").addresses == ("127.0.0.1",)
    assert choose("", GLOO_SOCKET_IFNAME="eth0").addresses == ("10.0.0.1",)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("eth", "eth0 eth1"),
        ("=eth", ""),
        ("=eth0,ib0", "eth0 ib0"),
        ("^eth,lo", "docker0 ib0"),
        ("^=eth0", "lo docker0 eth1 ib0"),
        ("eth1:5000", "eth1"),
        (" ib , eth1", "eth1 ib0"),
        ("", ""),
        ("^", "lo docker0 eth0 eth1 ib0"),
    ],
)
def test_nccls_lists_are_read_as_nccl_does(value: str, meant: str) -> None:
    assert [name for name in ADDRESSES if matches(value, name)] == meant.split()
