"""`fairring bench` as a whole: its rows, its options, its files, and tiny runs, of which no time is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairring import cli, lab
from fairring.bench import many, many_calls, training
from fairring.bench.contestants import ALONE, parse_contestants
from fairring.bench.rows import Cluster, Sample, make_rows
from fairring.bench.table import COSTS, TIMES, make_table

BENCH = [sys.executable, "-m", "fairring", "bench"]


def sample(name: str, seconds: list[float], **more: Any) -> Sample:
    return Sample(name, 1000, in_flight=2, seconds=seconds, cpu_seconds=[0.5], **more)


def test_a_row_has_the_figures_that_its_samples_make() -> None:
    traffic = {0: {"messages": 2, "bytes": 7, "sends": 0}, 1: {"messages": 1, "bytes": 9, "sends": 1}}
    samples = [
        sample("gloo", [4.0, 5.0, 4.0]),
        sample("fairring", [2.0, 3.0, 2.0], traffic=traffic, wrong=0),
        sample("fake", [1.0], sums=False),
    ]
    gloo, ours, fake = make_rows(samples, Cluster([2, 2], link=1000.0))
    assert (ours.median, ours.deviation, ours.p99) == (2.0, 0.0, 3.0)
    assert (ours.algorithm_bandwidth, ours.bus_bandwidth, ours.of_limit) == (1000.0, 1500.0, 1.0)  # two calls at once
    assert (gloo.vs_stock, ours.vs_stock, ours.vs_stock_beyond_floor) == (1.0, 2.0, 3.0)
    assert ours.cpu_seconds_per_gb == 0.5 / (2 * 1000 * 4 / 1e9)
    assert ours.levels == {"machine": traffic[0], "rail": traffic[1]}
    assert (fake.algorithm_bandwidth, fake.of_limit, fake.vs_stock, fake.wrong) == (None, None, None, None)
    for columns in (TIMES, COSTS):
        assert len(make_table(columns, [gloo, ours, fake])) == 3


def test_on_one_machine_the_limit_is_what_copying_takes() -> None:
    [row] = make_rows([sample("fairring", [2.0])], Cluster([2], link=None))
    assert (row.of_limit, row.vs_stock) == (None, None)
    [row] = make_rows([sample("fairring", [2.0])], Cluster([2], None, {2000: 1.5}))  # two calls of 1000 bytes at once
    assert row.of_limit == 0.75


def test_across_sites_the_limit_is_that_of_the_way_between_them() -> None:
    traffic = {2: {"messages": 1, "bytes": 9}}
    cluster = Cluster([1, 1, 1, 1], link=1e9, sites=[1, 1, 1, 1], site_link=1500.0)
    [row] = make_rows([sample("fairring", [2.0], traffic=traffic)], cluster)
    assert row.of_limit == 1.0
    assert row.levels == {"site": traffic[2]}


def test_the_communication_part_of_a_step_is_a_difference_within_its_round() -> None:
    rows = training.make_rows({ALONE: [1.0, 5.0, 1.0], "gloo": [4.0, 8.0, 4.0], "fairring": [3.0, 6.5, 3.0]})
    alone, gloo, ours = rows
    assert (alone.communication, gloo.communication, ours.communication) == (None, 3.0, 2.0)
    assert (ours.communication_deviation, ours.communication_vs_stock) == (0.0, 1.5)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-b", "8MiB", "-e", "4MiB"], "-b 8MiB is more than -e 4MiB"),
        (["--sizes", "4KiB,lots"], "--sizes='lots' is not a size"),
        (["--in-flight", "0"], "--in-flight 0: at least 1"),
        (["--iterations", "0"], "--iterations 0: at least 1"),
        (["--backends", "gloo,fairring[lanes]"], "settings are Fairring's variables"),
        (["--op", "avg", "--dtype", "int64"], "--op avg of int64 is not defined"),
        (["--json", "/nowhere/out.json"], "--json /nowhere/out.json can't be written (No such file or directory)"),
    ],
)
def test_what_can_not_be_measured_is_said_before_anything_is(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "all-reduce", *words])
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--op", "max"], "--op max: broadcast reduces nothing"),
        (["send-recv", "--in-flight", "2"], "--in-flight 2: send-recv is one message at a time"),
        (["barrier", "--sizes", "4KiB"], "--sizes 4KiB: a barrier has no size"),
    ],
)
def test_options_of_other_collectives_are_refused(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", *(["broadcast"] if words[0].startswith("--") else []), *words])
    assert text in capsys.readouterr().err


def test_without_a_launcher_it_says_how_to_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert cli.main(["bench", "all-reduce"]) == 2
    assert "give --machines and --ranks for an emulated cluster, or start it with `torchrun" in capsys.readouterr().err


def test_a_tiny_run_writes_every_figure(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    backends = "gloo,fairring,fake,fairring[lanes=2]"
    command = [*BENCH, "all-reduce", "--sizes", "4KiB,64KiB", "--backends", backends, "--iterations", "3"]
    command += ["--in-flight", "2", "--json", str(file)]
    with lab.Lab(command, machines=[2, 1], rate="none", network="none") as two_machines:
        result = two_machines.wait(timeout=120)
    assert result.exit_codes == [0, 0, 0], result.output
    assert result.stdout[1] == ""
    for words in (
        "machines of 2, 1 ranks",
        "all-reduce (sum) of float32, 2 in flight; link:",
        "of_limit",
        "#wrong",
        "RS0",
    ):
        assert words in result.stdout[0]
    written = json.loads(file.read_text())
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
            assert row["plan"]["steps"].startswith("RS0")


def test_many_tensors_get_sizes_between_two_bounds_in_whole_elements() -> None:
    sizes = many.spread(1024, 102_400, 300)
    assert len(sizes) == 300
    assert all(1000 < size <= 102_400 and size % 8 == 0 for size in sizes)
    assert 0.45 < sum(size < 10_240 for size in sizes) / 300 < 0.55  # evenly over the logarithm
    assert many.spread(4096, 4096, 3) == [4096] * 3


def test_the_floor_is_the_network_or_c10ds_own_time() -> None:
    samples = [sample("fairring", [8.0]), sample("fake", [1.0], sums=False)]
    rows = make_rows(samples, Cluster([2, 2], link=1000.0))  # 2 s for two calls at once
    assert many_calls.vs_floor(rows[0], rows) == pytest.approx(4.0)
    slow = make_rows([samples[0], sample("fake", [4.0], sums=False)], Cluster([2, 2], link=1000.0))
    assert (many_calls.vs_floor(slow[0], slow), many_calls.vs_floor(slow[1], slow)) == (2.0, None)


@pytest.mark.slow
def test_a_tiny_run_of_many_tensors(tmp_path: Path) -> None:
    file = tmp_path / "many.json"
    command = [*BENCH, "many", "--tensors", "20", "--sizes", "8,4KiB", "--iterations", "2", "--json", str(file)]
    with lab.Lab(command, machines=[2, 1], rate="none", network="none") as two_machines:
        result = two_machines.wait(timeout=120)
    assert result.exit_codes == [0, 0, 0], result.output
    rows = json.loads(file.read_text())["rows"]
    assert [(row["way"], row["backend"]) for row in rows] == [
        (way, backend) for way in many.WAYS for backend in ("gloo", "fairring", "fake")
    ]
    assert [row["wrong"] for row in rows] == [0, 0, None] * 3
    *together, alone = (row for row in rows if row["backend"] == "fairring")
    assert all(row["levels"]["rail"]["messages"] * 10 <= alone["levels"]["rail"]["messages"] for row in together)
    assert all(0 < row["levels"]["rail"]["sends"] <= row["levels"]["rail"]["messages"] for row in (*together, alone))
    assert all(row["vs_floor"] > 0 for row in together)


@pytest.mark.slow
def test_a_tiny_run_of_another_collective(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    command = [*BENCH, "all-to-all", "--sizes", "6KiB", "--iterations", "2", "--json", str(file)]
    with lab.Lab(command, machines=[2, 1], rate="none", network="none") as two_machines:
        result = two_machines.wait(timeout=120)
    assert result.exit_codes == [0, 0, 0], result.output
    written = json.loads(file.read_text())
    link = max(min(one["sent"] + one["received"]) for one in written["conditions"]["link_bytes_per_second"])
    *checked, floor = written["rows"]
    assert [row["wrong"] for row in checked] == [0, 0]
    for row in checked:
        assert row["of_limit"] == pytest.approx(row["size_bytes"] * 2 / 3 / link / row["median"])
    assert floor["of_limit"] is None


@pytest.mark.slow
def test_a_tiny_training(tmp_path: Path) -> None:
    file = tmp_path / "ddp.json"
    model = ["--width", "64", "--layers", "1", "--iterations", "2", "--warmup", "1", "--bucket-mib", "0.1"]
    with lab.Lab([*BENCH, "ddp", *model, "--json", str(file)], machines=[2], network="none") as machine:
        result = machine.wait(timeout=120)
    assert result.exit_codes == [0, 0], result.output
    assert [row["backend"] for row in json.loads(file.read_text())["rows"]] == [ALONE, "gloo", "fairring"]


@pytest.mark.slow
@pytest.mark.parametrize("sites", ["2", "2,1"])
def test_it_measures_across_sites(sites: str) -> None:
    machines = "2" if sites == "2" else "3"
    words = ["--machines", machines, "--ranks", "1", "--sites", sites, "--site-rate", "100mbit", "--site-delay", "1ms"]
    command = [*BENCH, "all-reduce", *words, "--sizes", "4KiB", "--backends", "gloo,fairring,fairring[site=one]"]
    command += ["--iterations", "2"]
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    for text in ("2 sites", "between sites:", "AR2", "fairring[site=one]"):
        assert text in result.stdout, result.stdout


def test_the_lab_is_started_where_machines_are_named() -> None:
    command = [*BENCH, "all-reduce", "--machines", "2", "--ranks", "1", "--rate", "nonsense"]
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert "'nonsense' is not a rate" in result.stderr
