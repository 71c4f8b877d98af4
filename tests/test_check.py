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
from fairring.check import gaps, report, saved_rows
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
        "passed_over": [],
        **changes,
    }


def test_nothing_is_warned_of_where_machines_are_alike() -> None:
    assert advice([system(), system()], ["a", "b"], "no InfiniBand or RoCE device is here") == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
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
    rail = report["levels"][1]
    assert rail["seconds"] > 3 * rail["predicted_seconds"]
    assert [text for text in report["warnings"] if "16 MiB at level rail took" in text and "--save" in text]
    assert report["plan"]["measured_seconds"] > rail["predicted_seconds"]

    with lab.Lab(CHECK, [2, 1], "100mbit", env={"FAIRRING_COST_ROWS": str(saved)}) as running:
        result = running.wait(TIMEOUT_SECONDS)
    assert result.exit_codes == [0, 0, 0], result.output
    for words in ("shared memory", "no RDMA devices", cost_rows.read(saved).digest()):
        assert words in result.stdout[0]


def level(**changes: Any) -> dict[str, Any]:
    """The rails of two machines with two ranks each: as predicted, with changes."""
    as_predicted = {
        "level": "rail",
        "seconds": 0.030,
        "predicted_seconds": 0.028,
        "bytes_per_second": 1.2e9,
        "predicted_bytes_per_second": 1.25e9,
    }
    return {**as_predicted, **changes}


SLOW = {"seconds": 0.281, "bytes_per_second": 60e6}


@pytest.mark.parametrize(
    ("changes", "speed", "saved", "words"),
    [
        ({}, None, False, []),
        ({"seconds": 0.060}, None, False, []),
        (
            SLOW,
            None,
            False,
            ["rail took 281.0 ms, 10.0 times longer than the predicted 28.0 ms", "10 Gbit/s", "960 Mbit"],
        ),
        (SLOW, None, True, ["saved when it was faster"]),
        (SLOW, 10_000, False, ["10000 Mbit/s should bring 625 to each of 2 rank(s)", "look at cables"]),
        (SLOW, 1000, False, ["1000 Mbit/s should bring 62 to each of 2 rank(s)", "and does", "check --save"]),
        ({"seconds": 0.003}, None, False, ["9.3 times shorter", "slower system", "check --save"]),
        ({"level": "machine", "seconds": 0.2}, None, False, ["2 ranks of a share 1 cores", "a load of 7.0 on 1 cores"]),
        ({"level": "machine", "seconds": 0.2, "cores": 8, "load": 0.1}, None, False, ["memory is slow"]),
    ],
)
def test_a_large_gap_to_the_prediction_is_told_with_its_likely_cause(
    changes: dict[str, Any], speed: int | None, saved: bool, words: list[str]
) -> None:
    changes = dict(changes)
    cores, load = changes.pop("cores", 1), changes.pop("load", 7.0)
    here = system(interface={"speed": speed}, hostname="a", cores=cores, load=load)
    told = gaps.gaps([level(**changes)], [here] * 4, ["a", "a", "b", "b"], saved=saved)
    assert len(told) == bool(words)
    for word in words:
        assert word in told[0]


def test_every_level_is_compared_with_what_the_rows_say_of_it_alone() -> None:
    rows = [*BUILT_IN, (30e-3, 10e-6, 12.5e6, 8e9)]
    found = {
        name: report.compared(Config(), Measured(name, 2, 100e-6, 0.1, 1e9), rows)
        for name in ("machine", "rail", "site")
    }
    seconds = [found[name]["predicted_seconds"] for name in ("machine", "rail", "site")]
    assert seconds == sorted(seconds)
    assert found["rail"]["predicted_seconds"] == pytest.approx(LARGE_BYTES / 1.25e9, rel=0.5)
    assert found["site"]["predicted_seconds"] == pytest.approx(LARGE_BYTES / 12.5e6, rel=0.5)
    assert [one["predicted_bytes_per_second"] for one in found.values()] == [5e9, 1.25e9, 12.5e6]


def test_a_variable_that_was_passed_over_is_warned_of() -> None:
    passed = system(passed_over=["GLOO_SOCKET_IFNAME=ib7 is passed over: it is none"])
    assert advice([system(), passed], ["a", "b"], "") == ["rank 1: GLOO_SOCKET_IFNAME=ib7 is passed over: it is none."]
