"""Shards in a real job in the lab: who owns what where a machine's link is slow."""

from __future__ import annotations

import pytest
from lab_programs import needs_namespaces, program

from fairring.lab import Lab

pytestmark = [needs_namespaces, pytest.mark.slow]

TIMEOUT_SECONDS = 280  # less than pytest's own


def shares_of(setting: str, own_rates: str, calls: int) -> list[float]:
    settings = {"FAIRRING_WEIGHTED_SHARDS": setting}
    command = program("sharing", str(calls))
    with Lab(command, [1, 1, 1], "300mbit", own_rates=own_rates, env=settings) as lab:
        result = lab.wait(TIMEOUT_SECONDS)
    assert result.exit_code == 0, result.stderr
    return [float(share) for share in result.stdout[0].strip().strip("[]").split(",") if share]


def test_a_machine_whose_link_is_slow_comes_to_own_nothing() -> None:
    assert shares_of("on", "1=75mbit", calls=20) == [0.5, 0.0, 0.5]


def test_shards_stay_equal_where_weights_are_off() -> None:
    assert shares_of("off", "1=75mbit", calls=6) == []
