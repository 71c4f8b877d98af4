"""`fairring check`: its findings on emulated machines, its warnings, and the cost rows that it saves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab_programs import needs_namespaces

from fairring import cost_rows, lab
from fairring.check import saved_rows
from fairring.check.advice import advice
from fairring.check.measure import LARGE_BYTES, Measured, groups_of
from fairring.config import Config, ConfigError

CHECK = [sys.executable, "-m", "fairring", "check"]
TIMEOUT_SECONDS = 150
BUILT_IN = [(15e-6, 2e-6, 5e9, 8e9), (40e-6, 10e-6, 1.25e9, 8e9)]


def system(**changes: Any) -> dict[str, Any]:
    """A rank's machine on which nothing is wrong, with changes."""
    interface = {"name": "eth0", "mtu": 1500, "speed": 10_000} | changes.pop("interface", {})
    return {
        "addresses": ["10.0.0.1"],
        "rdma": [],
        "versions": {"torch": "2.15.0"},
        "interfaces": [interface],
        **changes,
    }


def test_nothing_is_warned_of_where_machines_are_alike() -> None:
    assert advice([system(), system()], ["a", "b"], "no InfiniBand or RoCE device is here") == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"addresses": ["127.0.1.1"]}, ["rank 1 listen", "TP_SOCKET_IFNAME"]),
        ({"interface": {"mtu": 9000}}, ["from 1500 (rank 0) to 9000"]),
        ({"interface": {"speed": 1000}}, ["rank 1 have an interface of 1000 Mbit/s", "10000"]),
        ({"versions": {"torch": "2.14.0"}}, ["2.14.0, 2.15.0"]),
        ({"rdma": [{"obstacle": "turn IPv6 on there"}]}, ["rank 1: RoCE needs IPv6"]),
    ],
)
def test_what_differs_between_machines_is_warned_of(changes: dict[str, Any], words: list[str]) -> None:
    (warning,) = [text for text in advice([system(), system(**changes)], ["a", "b"], "") if text]
    for word in words:
        assert word in warning


def test_rdma_that_is_there_and_not_used_is_warned_of_with_the_reason() -> None:
    there = system(rdma=[{"obstacle": "its port 1 is DOWN"}])
    (warning,) = advice([there, there], ["a", "b"], "rank 0 (x): its port 1 is DOWN")
    assert "rank 0 (x): its port 1 is DOWN" in warning
    assert advice([there], ["a"], "") == []


@pytest.mark.parametrize(
    ("machines", "groups"),
    [
        ("a", {}),
        ("aa", {"machine": [[0, 1]]}),
        ("ab", {"rail": [[0, 1]]}),
        ("abab", {"machine": [[0, 2], [1, 3]], "rail": [[0, 1], [2, 3]]}),
        ("aab", {"machine": [[0, 1]], "rail": [[0, 2]]}),
    ],
)
def test_a_level_is_measured_where_it_has_groups(machines: str, groups: dict[str, list[list[int]]]) -> None:
    assert groups_of(machines) == groups


def test_between_sites_the_ranks_of_a_place_are_measured() -> None:
    found = groups_of("aabbccdd", ["north"] * 4 + ["south"] * 4)
    assert found["rail"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert found["site"] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert groups_of("ab", ["north", "south"]) == {"site": [[0, 1]]}


def test_saved_rows_are_the_inverse_of_the_prediction() -> None:
    latency, per_message, speed, summed = BUILT_IN[1]
    machine_latency = 2 * BUILT_IN[0][0]
    small = machine_latency + latency + 3 * per_message
    large = small + 2 * LARGE_BYTES * 3 / 4 / speed + LARGE_BYTES / summed
    measured = [Measured("rail", 4, small, large, 0.0)]
    machine, rail = saved_rows.rows(measured, BUILT_IN)
    assert machine == BUILT_IN[0]
    assert rail == pytest.approx(BUILT_IN[1])


def test_rows_that_were_saved_are_read_again_and_must_agree_between_ranks(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    cost_rows.write(file, BUILT_IN, "for a test")
    config = Config.from_environment({"FAIRRING_COST_ROWS": str(file)})
    assert config.cost_rows is not None
    assert config.cost_rows.by_level() == [*BUILT_IN, BUILT_IN[1]]
    assert config.agreement("0.1") != Config().agreement("0.1")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{}", "does not begin"),
        ("nonsense", "Expecting value"),
        (json.dumps({"format": cost_rows.FORMAT}), "level 'machine' needs these numbers"),
        (
            json.dumps({"format": cost_rows.FORMAT, "levels": {"machine": dict.fromkeys(cost_rows.FIELDS, 0)}}),
            "speed of 0",
        ),
    ],
)
def test_a_file_without_rows_is_an_error_that_says_why(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "rows.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=reason):
        Config.from_environment({"FAIRRING_COST_ROWS": str(file)})


def test_alone_it_describes_this_machine() -> None:
    ended = subprocess.run([*CHECK, "--json"], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True)
    report = json.loads(ended.stdout)
    assert report["machines"] == 1
    assert report["levels"] == []
    assert report["plan"]["steps"] == "RS0 AG0"
    assert report["ranks"][0]["versions"]["fairring"]


@pytest.mark.slow
@needs_namespaces
def test_between_machines_it_measures_every_level_and_saves_rows_that_ranks_take(tmp_path: Path) -> None:
    saved = tmp_path / "rows.json"
    with lab.Lab([*CHECK, "--json", "--save", str(saved)], [2, 1], "100mbit") as running:
        result = running.wait(TIMEOUT_SECONDS)
    assert result.exit_codes == [0, 0, 0], result.output
    report = json.loads(result.stdout[0])
    assert (report["machines"], report["transport"]["rail"]) == (2, "tcp")
    assert [(level["level"], level["ranks"]) for level in report["levels"]] == [("machine", 2), ("rail", 2)]
    assert {rank["interfaces"][0]["name"] for rank in report["ranks"]} == {"eth0"}
    assert result.stdout[1:] == ["", ""]

    with lab.Lab(CHECK, [2, 1], "100mbit", env={"FAIRRING_COST_ROWS": str(saved)}) as running:
        result = running.wait(TIMEOUT_SECONDS)
    assert result.exit_codes == [0, 0, 0], result.output
    for words in ("shared memory", "no RDMA devices", cost_rows.read(saved).digest()):
        assert words in result.stdout[0]
