"""Survivors of random deaths: no hang, and no two of them disagree about which steps have counted."""

from __future__ import annotations

import pytest
from random_deaths import Game, c10d

SEEDS = [0, pytest.param(1, marks=pytest.mark.slow)]


@pytest.mark.skipif(not hasattr(c10d, "_reconfigure"), reason="PyTorch before 2.15 has no reconfigure")
@pytest.mark.parametrize("seed", SEEDS)
def test_members_that_reconfigure_agree_on_the_steps_that_counted(seed: int) -> None:
    Game(seed, shrinks=False).play(rounds=6)


@pytest.mark.parametrize("seed", SEEDS)
def test_members_of_a_shrunk_group_agree_on_the_steps_that_counted(seed: int) -> None:
    Game(seed, shrinks=True).play(rounds=6)
