"""Random deaths, silences and cut links: no hang, and no two ranks that disagree about which steps have counted."""

from __future__ import annotations

import pytest
from lab_programs import needs_namespaces
from random_deaths import CUTS, KILLS, STOPS, Game, c10d, make_cluster

SEEDS = [0, pytest.param(1, marks=pytest.mark.slow)]
needs_reconfigure = pytest.mark.skipif(
    not hasattr(c10d, "_reconfigure"), reason="PyTorch before 2.15 has no reconfigure"
)


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
