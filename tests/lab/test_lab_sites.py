"""The emulated cluster's sites: the machines in each, and the rate and the delay of the links between them."""

from __future__ import annotations

import time

import pytest
from lab_programs import REPORT, TIMEOUT_SECONDS, needs_namespaces, python, reports, run_command_line

from fairring import lab
from fairring.lab.forwarder import Trunk
from fairring.lab.sites import Sites, describe_uplinks, parse_sites

# Answers every message, by UDP and TCP; a TCP client sends as much as it says, and gets one byte when all has come.
SERVER = """
import socket, threading
echo = socket.socket(type=socket.SOCK_DGRAM)
echo.bind(("", 29502))
server = socket.create_server(("", 29501))
def answer():
    while True:
        echo.sendto(*echo.recvfrom(2048))
threading.Thread(target=answer, daemon=True).start()
print("listening", flush=True)
while True:
    peer = server.accept()[0]
    left, buffer = int(peer.recv(16).decode()), bytearray(1 << 18)
    while left:
        left -= peer.recv_into(buffer, min(left, len(buffer)))
    peer.sendall(b"t")
    peer.close()
"""
PING = """
import socket, sys, time
probe = socket.socket(type=socket.SOCK_DGRAM)
probe.settimeout(10)
probe.connect((sys.argv[1], 29502))
best = 1e9
for _ in range(10):
    begin = time.perf_counter()
    probe.send(b"p")
    probe.recv(16)
    best = min(best, time.perf_counter() - begin)
print(best)
"""
TRANSFER = """
import socket, sys, time
total = int(sys.argv[2])
peer = socket.create_connection((sys.argv[1], 29501))
begin = time.perf_counter()
peer.sendall(str(total).rjust(16).encode())
peer.sendall(bytes(total))
peer.recv(1)
print(total / (time.perf_counter() - begin))
"""


def address(machine: int) -> str:
    return f"10.77.0.{machine + 1}"


@needs_namespaces
def test_the_way_between_sites_has_their_rate_and_delay() -> None:
    with lab.Lab(python(SERVER), [1] * 4, "none", sites="2,1,1", site_rate="50mbit", site_delay="20ms") as cluster:
        for rank in range(4):
            cluster.wait_for_output(rank, "listening")
        near, *far = (float(cluster.exec(0, python(PING, address(m))).stdout) for m in (1, 2, 3))
        speed = float(cluster.exec(0, python(TRANSFER, address(2), "8000000")).stdout)
    assert near < 0.020, "on the same site nothing is delayed"
    for seconds in far:
        assert 0.040 <= seconds < 0.080, "there and back"
    assert 0.5 < speed / (50e6 / 8) < 1.02


@needs_namespaces
def test_without_a_delay_sites_have_a_rate_alone() -> None:
    with lab.Lab(python(SERVER), [1, 1], "none", sites="2", site_rate="50mbit") as cluster:
        cluster.wait_for_output(1, "listening")
        assert float(cluster.exec(0, python(PING, address(1))).stdout) < 0.020
        speed = float(cluster.exec(0, python(TRANSFER, address(1), "8000000")).stdout)
    assert 0.5 < speed / (50e6 / 8) < 1.02


@needs_namespaces
@pytest.mark.parametrize("delay", ["0ms", "1ms"])
def test_the_cable_between_sites_can_be_pulled(delay: str) -> None:
    ping = python(PING.replace("settimeout(10)", "settimeout(0.5)"), address(2))
    with lab.Lab(python(SERVER), [1, 1, 1], "none", sites="2,1", site_delay=delay) as cluster:
        cluster.wait_for_output(2, "listening")
        assert cluster.exec(0, ping).returncode == 0
        cluster.set_uplink(1, up=False)
        assert "timed out" in cluster.exec(0, ping).stderr
        assert cluster.exec(0, python(PING, address(1))).returncode == 0, "the site itself has no part in it"
        cluster.set_uplink(1, up=True)
        # The bridge listens again a moment after the carrier.
        end = time.monotonic() + TIMEOUT_SECONDS
        while cluster.exec(0, ping).returncode and time.monotonic() < end:
            pass
        assert cluster.exec(0, ping).returncode == 0


def test_ranks_know_their_site_unless_the_user_has_said_another() -> None:
    with lab.Lab(python(REPORT), [2, 1], network="none", sites="2") as cluster:
        found = reports(cluster.wait(TIMEOUT_SECONDS))
    assert [rank["FAIRRING_SITE"] for rank in found] == ["site0", "site0", "site1"]
    with lab.Lab(python(REPORT), [1, 1], network="none", sites="2", env={"FAIRRING_SITE": ""}) as cluster:
        found = reports(cluster.wait(TIMEOUT_SECONDS))
    assert [rank["FAIRRING_SITE"] for rank in found] == ["", ""]
    with lab.Lab(python(REPORT), [1], network="none") as cluster:
        assert "FAIRRING_SITE" not in reports(cluster.wait(TIMEOUT_SECONDS))[0]


def test_sites_are_read_as_written() -> None:
    assert parse_sites("2", "100mbit", "20ms", 4) == Sites([2, 2], 12_500_000, 0.02)
    assert parse_sites("3,1", "none", "500us", 4) == Sites([3, 1], None, 0.0005)
    assert Sites([3, 1]).of_machines() == [0, 0, 0, 1]
    assert [uplink.bridge for uplink in describe_uplinks(Sites([1, 1]), 2)] == [
        "net0site0",
        "net0site1",
        "net1site0",
        "net1site1",
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--machines", "3", "--sites", "2"], "3 machines are not the same number in 2 sites"),
        (["--machines", "3", "--sites", "1,1"], "2 in all, but the lab has 3"),
        (["--machines", "2", "--sites", "two"], "is not a number of sites"),
        (["--machines", "2", "--sites", "2", "--site-delay", "20"], "is not a delay"),
        (["--machines", "2", "--sites", "2", "--site-delay", "11s"], "out of bounds"),
        (["--machines", "2", "--sites", "2", "--site-rate", "fast"], "is not a rate"),
    ],
)
def test_sites_that_make_no_sense_are_errors(words: list[str], reason: str) -> None:
    result = run_command_line(*words, "--", "true")
    assert result.returncode == 2
    assert reason in result.stderr


def test_a_trunk_learns_who_stands_where() -> None:
    def frame(to: int, origin: int) -> bytes:
        return bytes(10) + to.to_bytes(6, "big") + origin.to_bytes(6, "big") + b"payload"

    trunk = Trunk([5, 6, 7])
    everybody, one, other = 0xFFFFFFFFFFFF, 0x11, 0x22
    assert trunk.targets(5, frame(everybody, one)) == [6, 7]
    assert trunk.targets(6, frame(one, other)) == [5]
    assert trunk.targets(5, frame(other, one)) == [6]
    assert trunk.targets(6, frame(other, other)) == [], "it is where it came from"
