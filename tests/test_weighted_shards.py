"""Shards in a real job in the lab, where a machine's link is slow: the program asserts that sums are exact."""

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


# Which weights come out depends on how busy the cores are; tests/simulation asserts them, in virtual time.
def test_sums_are_exact_while_weights_may_change() -> None:
    assert sum(shares_of("on", "1=75mbit", calls=8)) in (0.0, 1.0)


def test_shards_stay_equal_where_weights_are_off() -> None:
    assert shares_of("off", "1=75mbit", calls=6) == []
