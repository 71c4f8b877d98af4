"""Shards in a real job in the lab, where a machine's or a site's link is slow: the program asserts exact sums."""

from __future__ import annotations

import pytest
from lab_programs import needs_namespaces, program

from fairring.lab import Lab

pytestmark = [needs_namespaces, pytest.mark.slow]

TIMEOUT_SECONDS = 280  # less than pytest's own


def shares_of(setting: str, own_rates: str, calls: int, sites: str = "1") -> list[float]:
    settings = {"FAIRRING_WEIGHTED_SHARDS": setting}
    command = program("sharing", str(calls))
    delay = "0ms" if sites == "1" else "2ms"
    with Lab(command, [1, 1, 1], "300mbit", own_rates=own_rates, sites=sites, site_delay=delay, env=settings) as lab:
        result = lab.wait(TIMEOUT_SECONDS)
    assert result.exit_code == 0, result.stderr
    return [float(share) for share in result.stdout[0].strip().strip("[]").split(",") if share]


# Which weights come out depends on how busy the cores are; tests/simulation asserts them, in virtual time.
@pytest.mark.parametrize("sites", ["1", "3"])
def test_sums_are_exact_while_weights_may_change(sites: str) -> None:
    assert sum(shares_of("on", "1=75mbit", calls=8, sites=sites)) in (0.0, 1.0)


def test_shards_stay_equal_where_weights_are_off() -> None:
    assert shares_of("off", "1=75mbit", calls=6) == []
