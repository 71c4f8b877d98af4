"""The all-reduce benchmark: its arithmetic against figures worked out by hand, and one tiny run on gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # scripts that import each other, not a package

from metrics import algorithm_bandwidth, bus_bandwidth, bytes_between_machines, of_limit, percentile  # noqa: E402
from pattern import EXACT_UP_TO, Pattern  # noqa: E402
from placement import Placement, PlacementError, describe  # noqa: E402
from sizes import format_size, parse_size  # noqa: E402

from fairring import lab  # noqa: E402

MIB = 1 << 20
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
}


@pytest.mark.parametrize(("world", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_bus_bandwidth_is_twice_the_share_of_the_others(world: int, factor: float) -> None:
    assert algorithm_bandwidth(1000, 0.5) == 2000
    assert bus_bandwidth(1000, 0.5, world) == pytest.approx(2000 * factor)


def test_bus_bandwidth_of_one_rank_is_an_error() -> None:
    with pytest.raises(ValueError, match="not 1"):
        bus_bandwidth(1000, 0.5, 1)


@pytest.mark.parametrize(("machines", "times_size"), [(2, 1.0), (4, 1.5), (10, 1.8)])
def test_bytes_between_machines_follow_from_the_machines_alone(machines: int, times_size: float) -> None:
    assert bytes_between_machines(25 * MIB, machines) == pytest.approx(25 * MIB * times_size)


def test_of_limit_is_one_when_the_link_is_full_all_the_time() -> None:
    assert of_limit(1000, seconds=10.0, machines=2, link=100.0) == pytest.approx(1.0)
    assert of_limit(1000, seconds=20.0, machines=2, link=100.0) == pytest.approx(0.5)
    assert of_limit(1000, seconds=20.0, machines=4, link=100.0) == pytest.approx(0.75)


def test_of_limit_needs_a_network_and_its_speed() -> None:
    with pytest.raises(ValueError, match="2 machines"):
        of_limit(1000, 1.0, 1, 100.0)
    with pytest.raises(ValueError, match="positive"):
        of_limit(1000, 1.0, 2, 0.0)


def test_percentile_is_a_sample_that_was_measured() -> None:
    samples = [float(value) for value in range(100, 0, -1)]
    assert [percentile(samples, percent) for percent in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0


@pytest.mark.parametrize(("samples", "percent"), [([], 50), ([1.0], 0), ([1.0], 101)])
def test_percentile_of_nothing_is_an_error(samples: list[float], percent: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile(samples, percent)


def test_sizes_are_read_and_written_in_their_units() -> None:
    assert [parse_size(text) for text in ("7", "4KiB", "25MiB", "2GiB", "1MB")] == [7, 4096, 25 * MIB, 2 << 30, 10**6]
    assert [format_size(size) for size in (100, 4096, 25 * MIB, 2 << 30)] == ["100B", "4KiB", "25MiB", "2GiB"]


@pytest.mark.parametrize("text", ["", "KiB", "1.5MiB", "4k", "-1"])
def test_a_size_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


def test_placement_is_what_torchrun_says() -> None:
    place = Placement.from_environment(TORCHRUN)
    assert place == Placement(rank=3, world=4, local_rank=1, local_world=2, machine=1, master=("10.0.0.1", 29500))


def test_placement_names_the_variables_that_are_missing() -> None:
    with pytest.raises(PlacementError, match="GROUP_RANK not set: start the benchmark with torchrun"):
        Placement.from_environment({name: value for name, value in TORCHRUN.items() if name != "GROUP_RANK"})


@pytest.mark.parametrize(("ranks", "text"), [([2, 2], "2 machines x 2 ranks"), ([3, 1], "machines of 3, 1 ranks")])
def test_placement_is_described(ranks: list[int], text: str) -> None:
    machines = [machine for machine, count in enumerate(ranks) for _ in range(count)]
    places = [Placement(rank, len(machines), 0, 1, machine, ("", 1)) for rank, machine in enumerate(machines)]
    assert describe(places) == text


@pytest.mark.parametrize("op", ["sum", "avg"])
@pytest.mark.parametrize("dtype", EXACT_UP_TO, ids=str)
@pytest.mark.parametrize("world", [2, 3, 30])
def test_pattern_knows_the_result_and_sees_one_wrong_element(dtype: torch.dtype, op: str, world: int) -> None:
    pattern = Pattern(dtype, world, op)
    total = torch.zeros(100_003, dtype=torch.float64)
    mine = torch.empty(len(total), dtype=dtype)
    for rank in range(world):
        pattern.fill(mine, rank, call=5)
        total += mine
    result = (total / world if op == "avg" else total).to(dtype)  # exact sums; to int64 it rounds down
    assert pattern.wrong(result, call=5) == 0
    result[100_000] += 1
    assert pattern.wrong(result, call=5) == 1
    assert pattern.wrong(result, call=6) > 0


def test_pattern_refuses_a_world_whose_sums_would_round() -> None:
    with pytest.raises(ValueError, match="300 ranks are not exact in"):
        Pattern(torch.bfloat16, 300, "sum")


def test_a_tiny_run_prints_and_writes_every_figure(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    script = [sys.executable, str(BENCHMARKS / "all_reduce.py"), "--backends", "gloo", "--sizes", "4KiB,64KiB"]
    command = [*script, "--rounds", "3", "--in-flight", "2", "--json", str(file)]
    with lab.Lab(command, machines=[1, 1], rate="none", network="none") as two_machines:
        result = two_machines.wait(timeout=60)
    assert result.exit_codes == [0, 0], result.output
    assert "2 machines x 1 rank, link" in result.stdout[0]
    assert [line.split()[0] for line in result.stdout[0].splitlines() if not line.startswith("#")] == ["4096", "65536"]
    assert result.stdout[1] == ""
    written = json.loads(file.read_text())
    assert len(written["link_bytes_per_second"]["sent"]) == 2
    for row, size in zip(written["rows"], (4096, 65536), strict=True):
        assert (row["size_bytes"], row["wrong"], row["vs_stock"], len(row["seconds"])) == (size, 0, 1.0, 3)
        assert row["median"] == sorted(row["seconds"])[1]
        assert row["algorithm_bandwidth"] == pytest.approx(2 * size / row["median"])  # two calls in flight
        slowest = min(min(speeds) for speeds in written["link_bytes_per_second"].values())
        assert row["of_limit"] == pytest.approx(2 * size / slowest / row["median"])


def test_without_a_launcher_it_says_how_to_start() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in TORCHRUN}
    command = [sys.executable, str(BENCHMARKS / "all_reduce.py")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert "GROUP_RANK, MASTER_ADDR, MASTER_PORT not set: start the benchmark with torchrun" in result.stderr
