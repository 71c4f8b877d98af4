"""Fairring across sites, with real processes: sums, bits, bytes on the slow link, transports, and failing well."""

from __future__ import annotations

import json
import signal

import pytest
from forked_programs import forked_program
from lab_programs import errors, needs_namespaces, run

from fairring import lab


@pytest.mark.parametrize(("sites", "count"), [("2", 2), ("2,1,1", 3)])
def test_each_site_sends_no_more_than_it_must_over_the_slow_link(sites: str, count: int) -> None:
    size = 8 << 20
    said = [json.loads(text) for text in run(forked_program("slow_bytes", str(size)), [1, 1, 1, 1], sites=sites)]
    machines = {"2": [2, 2], "2,1,1": [2, 1, 1]}[sites]
    first = 0
    for of_site in machines:
        sent = sum(rank["2"] for rank in said[first : first + of_site])
        assert sent == pytest.approx(2 * size * (count - 1) / count, rel=0.01)
        if of_site > 1 and count == 2:
            assert max(rank["2"] for rank in said[first : first + of_site]) == pytest.approx(sent / of_site, rel=0.01)
        first += of_site


def test_gradients_cross_in_fewer_bytes_with_the_same_bits_on_all_ranks_and_after_a_checkpoint() -> None:
    said = [json.loads(text) for text in run(forked_program("between_sites"), [1, 2, 1, 1], sites="2", network="none")]
    sent = {name: sum(rank["formats"][name]["sent"] for rank in said) for name in said[0]["formats"]}
    for name, least, apart in (("bf16", 1.99, 1e-3), ("int8", 3.9, 1e-2), ("int4", 7.5, 0.1), ("by bucket", 1.1, 0.1)):
        ours = [rank["formats"][name] for rank in said]
        assert sent["whole"] / sent[name] > least, name
        assert len({rank["bits"] for rank in ours}) == 1, name
        assert 0 < max(rank["apart"] for rank in ours) < apart, name
    for rank in said:
        assert rank["resumed"] == [True, False], "with its residuals, and without them"
        assert rank["one"][0] > 0, "the first sum's error is in the second"
        assert rank["one"][1] == pytest.approx(2, rel=0.2)


@needs_namespaces
def test_what_goes_to_other_sites_takes_the_interface_for_it() -> None:
    sent = "tr : ' ' </proc/net/dev | awk '/eth1/ {print $10}'"
    report = f'{sent}; "$@"; {sent}'
    command = ["sh", "-c", report, "sh", *forked_program("slow_bytes", str(4 << 20))]
    env = {"TP_SOCKET_IFNAME": "eth0", "FAIRRING_SITE_IFNAME": "eth1", "GLOO_SOCKET_IFNAME": "eth0"}
    for text in run(command, [1, 1, 1, 1], env, sites="2", interfaces=2):
        before, sent, after = text.split("\n")[:3]
        assert json.loads(sent)["2"] > 0
        assert int(after) - int(before) > json.loads(sent)["2"]
        assert int(after) - int(before) < 1.2 * json.loads(sent)["2"], "the rails take the other one"


@pytest.mark.parametrize("transport", ["rail=tensorpipe:uv,site=tcp", "rail=tcp,site=tensorpipe:uv"])
def test_a_killed_rank_ends_every_wait_with_an_error_that_names_it(transport: str) -> None:
    env = {"FAIRRING_TRANSPORT": transport}
    with lab.Lab(forked_program("endless"), [1, 1, 1, 1], "none", env=env, sites="2") as running:
        for rank in range(4):
            running.wait_for_output(rank, "ready")
        running.signal(signal.SIGKILL, 3)
        for text in errors(running, range(3)):
            assert "rank 3 (" in text
            assert "died" in text


@needs_namespaces
def test_a_link_between_sites_that_goes_down_ends_every_wait_with_an_error_that_names_it() -> None:
    env = {"FAIRRING_HEARTBEAT_TIMEOUT": "2"}
    with lab.Lab(forked_program("endless"), [1, 1, 1, 1], "100mbit", env=env, sites="2", site_rate="50mbit") as running:
        for rank in range(4):
            running.wait_for_output(rank, "ready")
        running.set_uplink(1, up=False)
        for text in errors(running, range(4)):
            assert "no sign of life" in text or "broke" in text


def test_a_machine_in_two_sites_is_an_error_that_names_the_ranks() -> None:
    differing = 'export FAIRRING_SITE=site$RANK; exec "$@"'
    said = run(["sh", "-c", differing, "sh", *forked_program("first_error")], [2], sites="1", network="none")
    for text in said:
        assert "stands in two sites" in text
