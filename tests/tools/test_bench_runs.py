"""`fairring bench` as a whole: its rows, its options, its files, and tiny runs, of which no time is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from lab_programs import measured

from fairring import cli
from fairring.bench import measure
from fairring.bench.contestants import ALONE, Contestant, parse_contestants
from fairring.bench.job import Job, Placement
from fairring.bench.race import Heat, busiest
from fairring.bench.rows import Amounts, Sample, make_rows
from fairring.bench.table import show
from fairring.by_level import level_names

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import gpu_table

BENCH = [sys.executable, "-m", "fairring", "bench"]


AMOUNTS = Amounts(1000, in_flight=2, bus_factor=1.5, least={"rail": 2000.0})


def sample(name: str, seconds: list[float], **more: Any) -> Sample:
    return Sample(Contestant(name, name), seconds=seconds, cpu_seconds=[0.5], **more)


def rows_of(samples: list[Sample], least_seconds: float | None = 2.0) -> list[dict[str, Any]]:
    return make_rows(samples, AMOUNTS, least_seconds, world=4, names=level_names(1))


def test_a_row_has_the_figures_that_its_samples_make(capsys: pytest.CaptureFixture[str]) -> None:
    traffic = {0: {"messages": 2, "bytes": 7, "sends": 0}, 1: {"messages": 1, "bytes": 3000, "sends": 1}}
    samples = [
        sample("gloo", [4.0, 5.0, 4.0]),
        sample("fairring", [2.0, 3.0, 2.0], traffic=traffic, wrong=0),
        sample("fake", [1.0]),
    ]
    gloo, ours, fake = rows_of(samples)
    assert (ours["median"], ours["deviation"], ours["p99"]) == (2.0, 0.0, 3.0)
    bandwidths = (ours["algorithm_bandwidth"], ours["bus_bandwidth"], ours["of_limit"])
    assert bandwidths == (1000.0, 1500.0, 1.0)  # two calls at once
    assert (gloo["vs_stock"], ours["vs_stock"]) == (1.0, 2.0)
    assert ours["cpu_seconds_per_gb"] == 0.5 / (2 * 1000 * 4 / 1e9)
    assert ours["levels"] == {"machine": traffic[0], "rail": traffic[1]}
    unknown = (fake["algorithm_bandwidth"], fake["of_limit"], fake["vs_stock"], fake["wrong"])
    assert unknown == (None, None, None, None)
    assert rows_of(samples, None)[1]["of_limit"] is None
    show("size", [{"size": "1000B", **row} for row in (gloo, ours, fake)])
    shown = capsys.readouterr().out
    assert "3 kB / 1 / 1" in shown  # on the rail
    assert "1.500" in shown  # times the least bytes
    assert "exchange" not in shown  # no row has any


def test_a_run_that_is_cut_short_leaves_what_it_has_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    file.touch()  # as the options' reader leaves it
    heats = [Heat(name, list, 0, 1, amounts=AMOUNTS) for name in ("4KiB", "25MiB")]
    workload = measure.Work("all-reduce", lambda _: heats)
    here = Placement(0, 2, 0)
    arguments = Namespace(device="cpu", contestants=[], json=file, module=mock.Mock(work=lambda *_: workload))
    samples = [sample("gloo", [4.0]), sample("fairring", [2.0])]
    with (
        mock.patch.object(measure, "joined", return_value=nullcontext(Job(here, [here, here]))),
        mock.patch.object(measure, "_conditions", return_value={}),
        mock.patch.object(measure, "_links", return_value={fact: None for fact, _ in measure.ENDS.values()}),
        mock.patch.object(measure, "race", side_effect=[samples, KeyboardInterrupt]),
        pytest.raises(KeyboardInterrupt),
    ):
        measure.measure(arguments)
    content = json.loads(file.read_text())
    assert not content["is_whole"]
    assert [(row["size"], row["backend"]) for row in content["rows"]] == [("4KiB", "gloo"), ("4KiB", "fairring")]
    empty = tmp_path / "empty.json"
    empty.touch()
    assert gpu_table.main([str(file), str(empty), str(tmp_path / "*.json")]) == 0
    assert "out*" in capsys.readouterr().out


def test_the_busiest_of_a_level_is_a_rank_a_machine_or_a_site() -> None:
    places = [Placement(rank, 4, machine=rank // 2, site="ab"[rank // 3]) for rank in range(4)]
    of_rank = [{level: {"messages": 1, "bytes": rank, "sends": 1} for level in range(3)} for rank in range(4)]
    found = busiest(of_rank, Job(places[0], places)) or {}
    assert [found[level]["bytes"] for level in range(3)] == [3, 2 + 3, 3]
    assert [found[level]["messages"] for level in range(3)] == [1, 2, 3]
    assert busiest([None] * 4, Job(places[0], places)) is None


def test_the_communication_part_of_a_step_is_a_difference_within_its_round() -> None:
    times = {ALONE: [1.0, 5.0, 1.0], "gloo": [4.0, 8.0, 4.0], "fairring": [3.0, 6.5, 3.0]}
    alone, gloo, ours = rows_of([sample(name, seconds) for name, seconds in times.items()])
    assert (alone["exchange"], gloo["exchange"], ours["exchange"]) == (None, 3.0, 2.0)
    assert (ours["exchange_deviation"], ours["exchange_vs_stock"]) == (0.0, 1.5)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("all-reduce -b 8MiB -e 4MiB", "-b 8MiB is more than -e 4MiB"),
        ("all-reduce --sizes 4KiB,lots", "--sizes='lots' is not a size"),
        ("all-reduce --in-flight 0", "--in-flight 0: at least 1"),
        ("all-reduce --iterations 0", "--iterations 0: at least 1"),
        ("all-reduce --backends gloo,fairring[lanes]", "settings are Fairring's variables"),
        ("all-reduce --op avg --dtype int64", "--op avg of int64 is not defined"),
        ("all-reduce --json /nowhere/out.json", "/nowhere/out.json can't be written (No such file or directory)"),
        ("broadcast --op max", "--op max: broadcast reduces nothing"),
        ("send-recv --in-flight 2", "--in-flight 2: send-recv is one message at a time"),
        ("barrier --sizes 4KiB", "--sizes 4KiB: a barrier has no size"),
        ("barrier --coalesced", "--coalesced: only for all-reduce"),
    ],
)
def test_what_can_not_be_measured_is_said_before_anything_is(
    words: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", *words.split()])
    assert text in capsys.readouterr().err


def test_without_a_launcher_it_says_how_to_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert cli.main(["bench", "all-reduce"]) == 2
    assert "give --machines and --ranks for an emulated cluster, or start it with `torchrun" in capsys.readouterr().err


def test_a_tiny_run_writes_every_figure(tmp_path: Path) -> None:
    backends = "gloo,fairring,fake,fairring[lanes=2]"
    command = [*BENCH, "all-reduce", "--sizes", "4KiB,64KiB", "--backends", backends, "--iterations", "3"]
    said, written = measured([*command, "--in-flight", "2"], [2, 1], tmp_path / "out.json")
    assert said[1] == ""
    for words in (
        "machines of 2, 1 ranks",
        "all-reduce (sum) of float32, 2 in flight; link:",
        "of_limit",
        "#wrong",
    ):
        assert words in said[0]
    assert written["conditions"]["ranks_of_machines"] == [2, 1]
    assert len(written["conditions"]["link_bytes_per_second"]) == 2
    names = [(row["size_bytes"], row["backend"]) for row in written["rows"]]
    assert names == [(size, one.name) for size in (4096, 65536) for one in parse_contestants(backends)]
    link = max(min(one["sent"] + one["received"]) for one in written["conditions"]["link_bytes_per_second"])
    for row in written["rows"]:
        assert len(row["seconds"]) == 3
        assert row["median"] == sorted(row["seconds"])[1]
        if row["backend"] == "fake":
            assert (row["wrong"], row["algorithm_bandwidth"]) == (None, None)
            continue
        assert row["wrong"] == 0
        assert row["algorithm_bandwidth"] == pytest.approx(2 * row["size_bytes"] / row["median"])  # two calls at once
        assert row["of_limit"] == pytest.approx(2 * row["size_bytes"] / link / row["median"])
        if row["settings"] or row["backend"] == "fairring":
            assert row["levels"]["rail"]["bytes"] >= 2 * row["size_bytes"]  # the second machine has one rank


@pytest.mark.slow
def test_coalesced_calls_share_messages(tmp_path: Path) -> None:
    rows = []
    for way in ([], ["--coalesced"]):
        command = [*BENCH, "all-reduce", "--sizes", "4KiB", "--in-flight", "20", "--iterations", "2", *way]
        rows.append(measured(command, [2, 1], tmp_path / "out.json")[1]["rows"])
        assert [row["wrong"] for row in rows[-1]] == [0, 0, None]
    alone, together = (of_way[1]["levels"]["rail"] for of_way in rows)
    assert together["messages"] * 5 <= alone["messages"]
    assert 0 < alone["sends"] <= alone["messages"]


@pytest.mark.slow
def test_a_tiny_run_of_another_collective(tmp_path: Path) -> None:
    command = [*BENCH, "all-to-all", "--sizes", "6KiB", "--iterations", "2"]
    _, written = measured(command, [2, 1], tmp_path / "out.json")
    link = max(min(one["sent"] + one["received"]) for one in written["conditions"]["link_bytes_per_second"])
    *checked, floor = written["rows"]
    assert [row["wrong"] for row in checked] == [0, 0]
    for row in checked:
        assert row["of_limit"] == pytest.approx(row["size_bytes"] * 2 / 3 / link / row["median"])
    assert floor["of_limit"] is None


@pytest.mark.slow
@pytest.mark.timeout(400)  # four processes import torch and its compiler
@pytest.mark.parametrize("model", ["ddp", "experts", "fsdp", "hsdp", "tensor"])
def test_a_tiny_training(model: str, tmp_path: Path) -> None:
    shape = ["--width", "64", "--layers", "2", "--iterations", "2", "--warmup", "1", "--bucket-mib", "0.1"]
    program = Path(__file__).parents[2] / "benchmarks" / "training_steps.py"
    command = [sys.executable, str(program), model, *shape]
    rows = measured(command, [2, 2], tmp_path / "out.json", seconds=300)[1]["rows"]
    assert [row["backend"] for row in rows] == [*([ALONE] if model != "tensor" else []), "gloo", "fairring"]
    assert [row["wrong"] for row in rows[-2:]] == [0, 0]
    assert rows[-1]["levels"]["rail"]["bytes"] > 10_000


def bench(words: list[str]) -> subprocess.CompletedProcess[str]:
    """All-reduces in a lab that the command itself starts."""
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    command = [*BENCH, "all-reduce", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("sites", ["2", "2,1"])
def test_it_measures_across_sites(sites: str) -> None:
    machines = "2" if sites == "2" else "3"
    words = ["--machines", machines, "--ranks", "1", "--sites", sites, "--site-rate", "100mbit", "--site-delay", "1ms"]
    words += ["--sizes", "4KiB", "--backends", "gloo,fairring,fairring[site=one]", "--iterations", "2"]
    result = bench(words)
    assert result.returncode == 0, result.stderr
    for text in ("2 sites", "per site and direction", "fairring[site=one]"):
        assert text in result.stdout, result.stdout


def test_the_lab_is_started_where_machines_are_named() -> None:
    result = bench(["--machines", "2", "--ranks", "1", "--rate", "nonsense"])
    assert result.returncode == 2
    assert "'nonsense' is not a rate" in result.stderr
