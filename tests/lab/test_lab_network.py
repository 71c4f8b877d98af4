"""The emulated cluster's network: shaped links that can be cut, with and without privileges, or none at all."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from lab_programs import (
    ON_TERM,
    REPORT,
    TIMEOUT_SECONDS,
    needs_namespaces,
    network_namespace,
    python,
    reports,
    run_command_line,
)

from fairring import lab

# Machine 0 sends to two others at once and then receives from both, so that each end of its link is the narrowest place
# once. Time is taken from before the first byte is sent to after the last has arrived, so no queue flatters the rate.
TRANSFER = """
import socket, sys, threading, time
total = int(sys.argv[1])
def take(peer):
    left, buffer = total, bytearray(1 << 18)
    peer.sendall(b"g")
    while left:
        left -= peer.recv_into(buffer, min(left, len(buffer)))
    peer.sendall(b"t")
def give(peer):
    peer.recv(1)
    peer.sendall(bytes(total))
    peer.recv(1)
"""
PEER = (
    TRANSFER
    + """
server = socket.create_server(("", 29501))
print("listening", flush=True)
peer = server.accept()[0]
take(peer)
give(peer)
"""
)
CENTRE = (
    TRANSFER
    + """
peers = [socket.create_connection((address, 29501)) for address in sys.argv[2:]]
for transfer in give, take:
    threads = [threading.Thread(target=transfer, args=(peer,)) for peer in peers]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(total * len(peers) / (time.perf_counter() - start))
"""
)
# Accepts for ever; the others reach it as long as the links are up.
ACCEPTOR = """
import socket
server = socket.create_server(("", 29501))
print("listening", flush=True)
while True:
    server.accept()[0].close()
"""
# The names of the machine that it runs on, or of another one, as its address looks to IPv4 and to IPv6 sockets.
NAME = """
import socket, sys
probe = socket.socket(type=socket.SOCK_DGRAM)
probe.connect(("10.77.0.1", 9))
address = sys.argv[1] if sys.argv[1:] else probe.getsockname()[0]
print(address, *(socket.gethostbyaddr(prefix + address)[0] for prefix in ("", "::ffff:")))
"""
CONNECT = "import socket; socket.create_connection(('10.77.0.1', 29501), timeout={seconds})"


def forbidding(limit: str) -> list[str]:
    """Runs a command where the kernel allows no more namespaces of a kind. Skips the test if that can't be arranged."""
    command = ["unshare", "-Ur", "sh", "-c", f'echo 0 >/proc/sys/user/{limit} && exec "$@"', "sh"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot make a user namespace to forbid namespaces in")
    return command


@needs_namespaces
def test_a_machine_sends_and_receives_at_the_rate_of_its_link_and_no_faster() -> None:
    with lab.Lab(python(PEER, "4000000"), [1, 1, 1], "100mbit") as cluster:
        for rank in (1, 2):
            cluster.wait_for_output(rank, "listening")
        measured = cluster.exec(0, python(CENTRE, "4000000", "10.77.0.2", "10.77.0.3"))
    shares = [float(rate) / (100e6 / 8) for rate in measured.stdout.split()]
    assert len(shares) == 2, measured.stderr
    assert max(shares) < 1.02
    assert min(shares) > 0.5


@needs_namespaces
def test_a_link_goes_down_and_up_again() -> None:
    with lab.Lab(python(ACCEPTOR), [1, 1]) as cluster:
        cluster.wait_for_output(0, "listening")
        assert cluster.exec(1, python(CONNECT.format(seconds=TIMEOUT_SECONDS))).returncode == 0
        cluster.link(0).set_down()
        assert "timed out" in cluster.exec(1, python(CONNECT.format(seconds=0.2))).stderr
        cluster.link(0).set_up()
        assert cluster.exec(1, python(CONNECT.format(seconds=TIMEOUT_SECONDS))).returncode == 0


@needs_namespaces
def test_stock_gloo_meets_in_the_lab_without_any_setting() -> None:
    program = (
        "import torch, torch.distributed as dist; dist.init_process_group('gloo'); one = torch.ones(3); "
        "dist.all_reduce(one); print(one.tolist()); dist.destroy_process_group()"
    )
    result = lab.run([sys.executable, "-c", program], machines=[1, 1], timeout=TIMEOUT_SECONDS)
    assert result.stdout == ["[2.0, 2.0, 2.0]\n"] * 2, result.stderr
    # The store asks for the names of those who connect, and warns where there are none.
    assert "hostname" not in "".join(result.stderr)


@needs_namespaces
def test_machines_have_names_that_nobody_outside_sees() -> None:
    hosts = Path("/etc/hosts").read_bytes()
    with lab.Lab(python(NAME), [1, 1]) as cluster:
        elsewhere = cluster.exec(0, python(NAME, "10.77.0.2"))
        result = cluster.wait(TIMEOUT_SECONDS)
    assert result.stdout == ["10.77.0.1 machine0 machine0\n", "10.77.0.2 machine1 machine1\n"], result.stderr
    assert elsewhere.stdout == "10.77.0.2 machine1 machine1\n", elsewhere.stderr
    assert Path("/etc/hosts").read_bytes() == hosts


@needs_namespaces
def test_where_mounts_are_forbidden_machines_do_without_names() -> None:
    forbid = forbidding("max_mnt_namespaces")
    result = run_command_line(
        "--network", "namespaces", "--", "sh", "-c", "getent hosts 10.77.0.1 || echo nameless", before=forbid
    )
    assert (result.returncode, result.stdout) == (0, "[rank 0] nameless\n"), result.stderr


@needs_namespaces
@pytest.mark.skipif(os.geteuid() != 0, reason="shows that root's privileges aren't needed; the user has none")
def test_the_network_needs_no_privileges() -> None:
    # CAP_SETFCAP alone is kept: without it the kernel does not let user 0, of all users, map himself.
    unprivileged = ["setpriv", "--bounding-set", "-all,+setfcap", "--inh-caps", "-all"]
    result = run_command_line(
        "--machines",
        "2",
        "--network",
        "namespaces",
        "--",
        "sh",
        "-c",
        "echo $(getent hosts $MASTER_ADDR)",
        before=unprivileged,
    )
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["[rank 0] 10.77.0.1 machine0", "[rank 1] 10.77.0.1 machine0"]


def test_without_namespaces_the_ranks_share_the_network_and_know_their_machines() -> None:
    with lab.Lab(python(REPORT), [1, 1], network="none") as cluster:
        with pytest.raises(lab.LabError, match="machine 1 has no link of its own: --network none"):
            cluster.link(1).set_down()
        result = cluster.wait(TIMEOUT_SECONDS)
    found = reports(result)
    assert result.unshaped_because == "--network none was asked for"
    assert [rank["FAIRRING_MACHINE"] for rank in found] == ["lab0", "lab1"]
    assert {rank["net"] for rank in found} == {network_namespace()}
    assert {rank["MASTER_ADDR"] for rank in found} == {"127.0.0.1"}


def test_the_shared_networks_master_port_is_kept_for_rank_0() -> None:
    listen = "import os, socket; socket.create_server(('', int(os.environ['MASTER_PORT']))); print('mine')"
    with lab.Lab(python(ON_TERM), [1], network="none", env={"PYTHONUNBUFFERED": "1"}) as cluster:
        cluster.wait_for_output(0, "ready")
        environment = Path(f"/proc/{cluster.pid(0)}/environ").read_text().split("\0")
        (port,) = (int(entry.partition("=")[2]) for entry in environment if entry.startswith("MASTER_PORT="))
        with pytest.raises(OSError, match="Address already in use"), socket.socket() as stranger:
            stranger.bind(("127.0.0.1", port))
    assert lab.Lab(python(listen), [1], network="none").start().wait(TIMEOUT_SECONDS).stdout == ["mine\n"]


def test_a_machine_that_forbids_namespaces_is_told_why_and_what_then() -> None:
    forbid = [*forbidding("max_user_namespaces"), "setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
    shared = run_command_line("--machines", "2", "--", "sh", "-c", "echo $FAIRRING_MACHINE", before=forbid)
    assert (shared.returncode, sorted(shared.stdout.splitlines())) == (0, ["[rank 0] lab0", "[rank 1] lab1"])
    assert "no emulated network here: unshare" in shared.stderr
    assert "user.max_user_namespaces" in shared.stderr
    assert "share the present network, unshaped" in shared.stderr
    insisting = run_command_line("--network", "namespaces", "--", "true", before=forbid)
    assert insisting.returncode == 125
    assert "no emulated network here: unshare" in insisting.stderr
