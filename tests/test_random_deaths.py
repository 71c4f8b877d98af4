"""Random deaths, silences and cut links: no hang, and no two ranks that disagree about which steps have counted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from lab_programs import needs_namespaces
from random_deaths import CUTS, KILLS, STOPS, TIMEOUT, Game, begin, c10d, enter_machine, make_cluster
from ranks import TIMEOUT_SECONDS, Ranks
from versions import needs_reconfigure

SEEDS = [0, pytest.param(1, marks=pytest.mark.slow)]


@needs_reconfigure
@pytest.mark.parametrize("seed", SEEDS)
def test_members_that_reconfigure_agree_on_the_steps_that_counted(seed: int) -> None:
    Game(seed, shrinks=False).play(rounds=6)


@pytest.mark.parametrize("seed", SEEDS)
def test_members_of_a_shrunk_group_agree_on_the_steps_that_counted(seed: int) -> None:
    Game(seed, shrinks=True).play(rounds=6)


@needs_namespaces
@needs_reconfigure
@pytest.mark.slow
def test_so_do_members_that_were_stopped_or_cut_off() -> None:
    with make_cluster() as cluster:
        Game(2, shrinks=False, kinds=(*KILLS, *STOPS, *CUTS), cluster=cluster).play(rounds=8)


@pytest.mark.slow
def test_so_do_members_of_a_shrunk_group_that_were_stopped() -> None:
    Game(3, shrinks=True, kinds=(*KILLS, *STOPS)).play(rounds=8)


def _failed_connections(pid: int) -> int:
    """The number of failed connection attempts on the machine on which that process runs."""
    names, values = (
        line.split() for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line.startswith("Tcp:")
    )
    return int(values[names.index("AttemptFails")])


def _meet(_rank: int, handles: list[str]) -> None:
    c10d._reconfigure(1, handles, timeout=TIMEOUT).wait()


@needs_namespaces
@needs_reconfigure
@pytest.mark.slow
def test_members_meet_though_the_network_has_given_one_up_a_moment_before_its_link_is_back() -> None:
    with make_cluster() as cluster:
        ranks = Ranks(3, of_rank=[{"TP_SOCKET_IFNAME": "eth0"}] * 3)
        two = [1, 2]  # on machines 0 and 1
        ranks.run(enter_machine, [cluster.pid(machine) for machine in range(2)], on=two)
        handles = ranks.run(begin, TIMEOUT, on=two)
        cluster.set_link(0, False)
        before = _failed_connections(cluster.pid(1))
        meeting = ranks.start(_meet, handles, on=two)
        until = time.monotonic() + TIMEOUT_SECONDS
        while _failed_connections(cluster.pid(1)) == before:
            assert time.monotonic() < until, "the kernel has not given the other machine up"
            time.sleep(0.01)
        cluster.set_link(0, True)
        ranks.finish(meeting)
        ranks.kill()
