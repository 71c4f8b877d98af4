"""`fairring plan`: predictions without a cluster."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest

from fairring import cli
from fairring.forecast import at_rate
from fairring.plan import add_arguments, predict


def plans(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert cli.main(["plan", "--json", *words]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_the_choice_comes_first_and_few_bytes_take_fewer_steps(capsys: pytest.CaptureFixture[str]) -> None:
    large = plans(capsys, "--machines", "7", "--ranks", "4", "--bytes", "25MiB")
    small = plans(capsys, "--machines", "7", "--ranks", "4", "--bytes", "4KiB")
    assert large[0]["steps"] == "RS0 RS1 AG1 AG0"
    assert small[0]["steps"] == "RS0 AR1 AG0"
    for found in (large, small):
        seconds = [plan["seconds"] for plan in found]
        assert seconds == sorted(seconds)
        assert {"RS0 RS1 AG1 AG0", "RS0 AR1 AG0"} <= {plan["steps"] for plan in found}


def test_large_calls_of_many_machines_take_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert plans(capsys, "--machines", "8", "--bytes", "25MiB")[0]["steps"] == "RS0 RS1 RS2 AG2 AG1 AG0"


def test_between_two_machines_each_rank_sends_its_share_of_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    call = 64 << 20
    rail = plans(capsys, "--machines", "2", "--ranks", "2", "--bytes", "64MiB")[0]["levels"][1]
    assert rail["bytes"] == pytest.approx(call / 2, rel=0.001)


def test_grouped_rails_send_the_bytes_of_two_shot_in_fewer_messages(capsys: pytest.CaptureFixture[str]) -> None:
    found = plans(capsys, "--machines", "64", "--bytes", "1MiB", "--transport", "ibv")
    flat, grouped = (
        next(plan for plan in found if plan["steps"] == steps)["levels"][1:]
        for steps in ("RS0 RS1 AG1 AG0", "RS0 RS1 RS2 AG2 AG1 AG0")
    )
    slices = next(plan["slices"] for plan in found if plan["steps"] == "RS0 RS1 AG1 AG0")
    assert sum(level["messages"] for level in flat) == slices * 2 * 63
    assert sum(level["messages"] for level in grouped) % (2 * (7 + 7)) == 0
    assert sum(level["bytes"] for level in grouped) == pytest.approx(sum(level["bytes"] for level in flat), rel=0.01)
    assert found[0]["steps"] not in ("RS0 RS1 AG1 AG0", "RS0 AR1 AG0")


def test_many_machines_take_plans_in_groups_alone() -> None:
    def steps(machines: int, *, flat: bool = False) -> set[str]:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        return {plan["steps"] for plan in predict(parser.parse_args(["--machines", str(machines)]), flat=flat)}

    grouped, two_shot = "RS0 RS1 RS2 AG2 AG1 AG0", "RS0 RS1 AG1 AG0"
    assert {grouped, two_shot} <= steps(64)
    assert steps(65) & {grouped, two_shot} == {grouped}
    assert steps(65, flat=True) & {grouped, two_shot} == {two_shot}


def test_a_slower_link_takes_longer_and_is_shared_by_the_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--machines", "2", "--ranks", "2", "--bytes", "64MiB", "--rate")
    fast, slow = (plans(capsys, *words, rate)[0]["seconds"] for rate in ("10gbit", "1gbit"))
    assert slow > 64 * 2**20 / 125e6 > fast
    rows = [(0.0, 0.0, 1.0, 1.0), (0.1, 0.2, 1.0, 2.0)]
    assert at_rate(rows, "1gbit", 4) == [rows[0], (0.1, 0.2, 125e6 / 4, 2.0)]


def test_a_format_takes_its_share_of_the_bytes_and_the_time_between_sites(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--machines", "4", "--ranks", "2", "--sites", "2", "--site-rate", "100mbit", "--bytes", "64MiB")
    whole = plans(capsys, *words)[0]
    for name, share in (("bf16", 1 / 2), ("int8", 130 / 512), ("int4", 66 / 512)):
        one = plans(capsys, *words, "--format", name)[0]
        assert one["levels"][2]["bytes"] == pytest.approx(whole["levels"][2]["bytes"] * share)
        assert one["seconds"] == pytest.approx(whole["seconds"] * share, rel=0.1)
    assert cli.main(["plan", *words, "--format", "int5"]) == 1
    assert "no format int5 between sites, but bf16, int8, int4" in capsys.readouterr().err


def test_two_sites_take_one_trip_for_little_and_their_share_for_much(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--machines", "4", "--ranks", "2", "--rate", "1gbit", "--sites", "2", "--site-rate", "100mbit")
    small = plans(capsys, *words, "--site-delay", "20ms", "--bytes", "4KiB")[0]
    assert "AR2" in small["steps"]
    assert 0.020 < small["seconds"] < 0.024
    large = plans(capsys, *words, "--site-delay", "0ms", "--bytes", "64MiB")[0]
    assert large["levels"][2]["bytes"] == pytest.approx(64 * 2**20 / 4, rel=0.001)


def test_four_sites_take_two_steps_for_much(capsys: pytest.CaptureFixture[str]) -> None:
    found = plans(capsys, "--machines", "4", "--sites", "4", "--bytes", "64MiB")
    assert found[0]["steps"] == "RS0 RS2 AG2 AG0"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--bytes", "much"], "is not a size"),
        (["--rate", "fast"], "is not a rate"),
        (["--ranks", "x"], "is not a number of ranks"),
    ],
)
def test_what_makes_no_sense_is_an_error(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", *words]) == 1
    assert reason in capsys.readouterr().err


def test_the_table_names_the_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "--machines", "7", "--ranks", "4"]) == 0
    said = capsys.readouterr().out
    assert "RS0 RS1 AG1 AG0 (chosen)" in said
