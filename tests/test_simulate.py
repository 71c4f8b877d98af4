"""`fairring plan --simulate`: calls and training steps in virtual time."""

from __future__ import annotations

import json
import signal
from types import FrameType
from typing import Any

import pytest

from fairring import cli
from fairring.bench.collectives import COLLECTIVES

PAYLOAD = 0.944 * 125e6  # bytes/s of 1 Gbit/s, less headers
CLUSTER = ("--machines", "4", "--ranks", "2", "--rate", "1gbit")


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert cli.main(["plan", "--simulate", "--json", *words]) == 0
    answers: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return answers


def test_a_large_call_takes_what_its_links_must_carry(capsys: pytest.CaptureFixture[str]) -> None:
    (answer,) = simulated(capsys, *CLUSTER, "--bytes", "4MiB")
    carried = 2 * (4 << 20) * 3 / 4
    assert answer["link_bytes"] == pytest.approx(carried, rel=0.01)
    assert carried / PAYLOAD < answer["seconds"] < 1.3 * carried / PAYLOAD
    assert (answer["machines"], answer["ranks"], answer["connections"]) == (4, 8, 3)
    assert answer["bus_bandwidth"] == pytest.approx((4 << 20) / answer["seconds"] * 2 * 7 / 8)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_takes_what_its_links_must_carry(collective: str, capsys: pytest.CaptureFixture[str]) -> None:
    (answer,) = simulated(capsys, *CLUSTER, "--bytes", "25MiB", "--collective", collective)
    least = COLLECTIVES[collective].link_share([2] * 4) * answer["bytes"] / PAYLOAD
    assert least < answer["seconds"] < 1.6 * least + 0.001  # a reduce carries half as much again
    assert answer["bus_bandwidth"] == pytest.approx(
        answer["bytes"] / answer["seconds"] * COLLECTIVES[collective].bus_factor(8)
    )


def test_a_barrier_has_no_size(capsys: pytest.CaptureFixture[str]) -> None:
    answers = simulated(capsys, *CLUSTER, "--collective", "barrier", "--bytes", "4KiB,1MiB")
    assert [answer["bytes"] for answer in answers] == [1]


def test_each_number_of_machines_and_each_size_has_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--machines", "1,2,4", "--ranks", "2", "--rate", "10gbit", "--bytes", "4KiB,64KiB")
    answers = simulated(capsys, *words, "--collective", "all-gather")
    of = [(answer["machines"], answer["bytes"]) for answer in answers]
    assert of == [(machines, size) for machines in (1, 2, 4) for size in (4096, 65536)]


def test_what_follows_the_last_gradient_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    (call,) = simulated(capsys, *CLUSTER, "--bytes", "1MiB")
    (step,) = simulated(capsys, *CLUSTER, "--buckets", "1MiB", "--compute", "20ms")
    assert step["seconds"] == pytest.approx(0.020 + call["seconds"], rel=0.02)
    assert step["efficiency"] == pytest.approx(0.020 / step["seconds"])


def test_buckets_before_the_last_travel_behind_the_computing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--compute", "300ms", "--buckets")
    (one,) = simulated(capsys, *CLUSTER, *words, "1MiB")
    (four,) = simulated(capsys, *CLUSTER, *words, "1MiBx4")
    assert four["bytes"] == 4 * one["bytes"]
    assert four["seconds"] == pytest.approx(one["seconds"], rel=0.01)


def test_a_narrow_spine_takes_as_much_longer(capsys: pytest.CaptureFixture[str]) -> None:
    (full,) = simulated(capsys, *CLUSTER, "--bytes", "4MiB")
    (quarter,) = simulated(capsys, *CLUSTER, "--bytes", "4MiB", "--spine", "4")
    assert quarter["seconds"] == pytest.approx(4 * full["seconds"], rel=0.2)


def test_a_cluster_of_many_ranks_needs_no_descriptors(capsys: pytest.CaptureFixture[str]) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        (answer,) = simulated(capsys, "--machines", "64", "--ranks", "8", "--rate", "100gbit", "--bytes", "4KiB")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert answer["ranks"] == 512


def test_a_signal_ends_a_simulation() -> None:
    class EndedError(Exception):
        pass

    def end(_number: int, _frame: FrameType | None) -> None:
        raise EndedError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(EndedError):
            cli.main(["plan", "--simulate", "--machines", "64", "--ranks", "8", "--rate", "100gbit", "--calls", "1000"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_the_table_shows_a_step_of_each_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--machines", "1,2", "--ranks", "2", "--rate", "1gbit", "--buckets", "64KiBx2", "--compute", "10ms")
    assert cli.main(["plan", "--simulate", *words]) == 0
    head, one, two = capsys.readouterr().out.splitlines()
    assert len(head) == len(one) == len(two)
    assert "efficiency" in head
    assert one.split()[:2] == ["1", "2"]
    assert two.split()[:2] == ["2", "4"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--simulate"], "needs --rate"),
        (["--simulate", "--rate", "fast"], "is not a rate"),
        (["--simulate", "--rate", "1gbit", "--machines", "0"], "is not a number of machines"),
        (["--simulate", "--rate", "1gbit", "--machines", "2,4", "--ranks", "1,2"], "drop one"),
        (["--simulate", "--rate", "1gbit", "--sites", "2", "--machines", "2"], "sites are not simulated"),
        (["--simulate", "--rate", "1gbit", "--transport", "ibv"], "ibv is not simulated"),
        (["--simulate", "--rate", "1gbit", "--buckets", "1MiB"], "--compute"),
        (["--simulate", "--rate", "1gbit", "--buckets", "1MiBxx", "--compute", "1s"], "size and number of buckets"),
        (["--simulate", "--rate", "1gbit", "--buckets", "1MiB", "--compute", "soon"], "is not a time"),
        (["--simulate", "--rate", "1gbit", "--spine", "0.5"], "from 1"),
        (["--simulate", "--rate", "1gbit", "--calls", "0"], "too few"),
        (["--simulate", "--rate", "1gbit", "--bytes", "much"], "is not a size"),
        (["--simulate", "--rate", "1gbit", "--ranks", "2", "--collective", "send-recv"], "two machines or more"),
        (["--machines", "2,4"], "with --simulate"),
        (["--latency", "1ms"], "is for --simulate"),
    ],
)
def test_what_makes_no_sense_is_an_error(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", *words]) == 1
    assert reason in capsys.readouterr().err
