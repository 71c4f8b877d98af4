"""The parts of `fairring bench`: its arithmetic against figures worked out by hand, sizes, contestants, values."""

from __future__ import annotations

import os

import pytest
import torch

from fairring.bench import memory
from fairring.bench.collectives import COLLECTIVES
from fairring.bench.contestants import Contestant, parse_contestants, settings_of
from fairring.bench.job import Job, Placement, PlacementError
from fairring.bench.pattern import EXACT_UP_TO, Pattern
from fairring.bench.rows import least_seconds, median_deviation, percentile
from fairring.bench.sizes import format_size, size_list, size_range
from fairring.bench.table import amount

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
def test_bus_bandwidth_is_that_of_a_flat_ring(world: int, factor: float) -> None:
    assert COLLECTIVES["all-reduce"].bus_factor(world) == pytest.approx(factor)
    assert COLLECTIVES["all-gather"].bus_factor(world) == pytest.approx(factor / 2)
    assert COLLECTIVES["broadcast"].bus_factor(world) == 1.0


@pytest.mark.parametrize(
    ("collective", "ranks", "times_size"),
    [
        ("all-reduce", [2, 2], 1.0),
        ("all-reduce", [1, 1, 5, 1], 1.5),  # machines sum first: their ranks do not matter
        ("reduce-scatter", [2, 2], 1 / 2),
        ("all-gather", [2, 2, 2, 2], 3 / 4),
        ("all-gather", [1, 3], 3 / 4),
        ("all-to-all", [2, 2], 1.0),  # two ranks send half of their tensors
        ("all-to-all", [1, 3], 3 / 4),
        ("gather", [1, 3], 3 / 4),
        ("scatter", [3, 1], 1 / 4),
        ("send-recv", [1, 1], 2.0),
        ("barrier", [2, 2], 0.0),
    ],
)
def test_bytes_between_machines_follow_from_their_ranks(collective: str, ranks: list[int], times_size: float) -> None:
    assert COLLECTIVES[collective].link_share(ranks) == pytest.approx(times_size)


def test_the_limit_is_the_time_of_the_level_that_needs_longest() -> None:
    assert least_seconds({"rail": 1000, "site": 500}, {"rail": 100.0, "site": 10.0}) == 50.0
    assert least_seconds({"rail": 1000, "site": 500}, {"rail": 100.0, "site": None}) == 10.0
    assert least_seconds({"rail": 0}, {"rail": 100.0}) is None  # a barrier moves nothing


def test_percentile_is_a_sample_that_was_measured() -> None:
    samples = [float(value) for value in range(100, 0, -1)]
    assert [percentile(samples, percent) for percent in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0


@pytest.mark.parametrize(("samples", "percent"), [([], 50), ([1.0], 0), ([1.0], 101)])
def test_percentile_of_nothing_is_an_error(samples: list[float], percent: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile(samples, percent)


def test_the_median_deviation_is_not_moved_by_one_outlier() -> None:
    assert median_deviation([1.0, 2.0, 3.0, 4.0, 100.0]) == 1.0
    assert median_deviation([5.0]) == 0.0
    with pytest.raises(ValueError, match="percentile"):
        median_deviation([])


def test_sizes_go_from_begin_to_end_by_a_factor_in_whole_elements() -> None:
    assert size_range("4", "1MiB", 64, 4) == [4, 256, 16384, MIB]
    assert size_range("8", "25", 1.5, 8) == [8, 16]  # 8, 12, 18: none twice
    assert size_range("1KB", "1KB", 1, 4) == [1000]
    assert size_list("7,4KiB,25MiB", 4) == [4, 4096, 25 * MIB]
    assert [format_size(size) for size in (100, 4096, 25 * MIB, 2 << 30)] == ["100B", "4KiB", "25MiB", "2GiB"]
    assert [amount(size) for size in (12, 1500, 13_107_200)] == ["12 B", "1.5 kB", "13.1 MB"]


@pytest.mark.parametrize(
    ("begin", "end", "factor", "words"),
    [
        ("8KiB", "4KiB", 2, "more than -e"),
        ("4", "8", 1, "leads from -b 4 nowhere"),
        ("2", "8", 2, "less than an element"),
        ("much", "8", 2, "-b='much' is not a size"),
    ],
)
def test_sizes_that_lead_nowhere_are_errors(begin: str, end: str, factor: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        size_range(begin, end, factor, 4)


def test_contestants_are_backends_and_fairring_with_settings() -> None:
    text = "gloo,fairring,fairring[transport=tensorpipe,lanes=2]"
    tensorpipe = {"FAIRRING_TRANSPORT": "tensorpipe", "FAIRRING_LANES": "2"}
    found = parse_contestants(text)
    assert [one.backend for one in found] == ["gloo", "fairring", "fairring"]
    assert [one.settings for one in found] == [{}, {}, tensorpipe]
    assert parse_contestants("fake")[0].sums is False


@pytest.mark.parametrize(
    "text", ["", "gloo,gloo", "gloo[lanes=2]", "fairring[lanes]", "fairring[lanes=99]", "fairring["]
)
def test_contestants_that_make_no_sense_are_errors(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no backend|is named twice|settings are|FAIRRING_LANES='99' is not"):
        parse_contestants(text)


def test_settings_hold_while_the_group_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRRING_LANES", "3")
    monkeypatch.delenv("FAIRRING_SLICE_SIZE", raising=False)
    with settings_of(Contestant("", "fairring", {"FAIRRING_LANES": "2", "FAIRRING_SLICE_SIZE": "1MiB"})):
        assert (os.environ["FAIRRING_LANES"], os.environ["FAIRRING_SLICE_SIZE"]) == ("2", "1MiB")
    assert os.environ["FAIRRING_LANES"] == "3"
    assert "FAIRRING_SLICE_SIZE" not in os.environ


def test_a_footprint_is_what_was_kept_and_what_came_on_top() -> None:
    footprint = memory.Footprint()
    with footprint.watch():
        kept = bytearray(32 * MIB)  # touched: it is zeroed memory, and written below
        kept[::4096] = b"x" * len(kept[::4096])
    with footprint.watch():
        more = bytearray(32 * MIB)
        more[::4096] = b"x" * len(more[::4096])
        del more
    assert 60 * MIB < footprint.peak < 70 * MIB
    assert footprint.shared < MIB


def test_placement_is_what_torchrun_says() -> None:
    place = Placement.from_environment(TORCHRUN)
    assert place == Placement(rank=3, world=4, machine=1, master=("10.0.0.1", 29500))


def test_placement_names_the_variables_that_are_missing() -> None:
    with pytest.raises(PlacementError, match="GROUP_RANK not set: start `-m fairring bench` with torchrun"):
        Placement.from_environment({name: value for name, value in TORCHRUN.items() if name != "GROUP_RANK"})


@pytest.mark.parametrize(("ranks", "text"), [([2, 2], "2 machines x 2 ranks"), ([3, 1], "machines of 3, 1 ranks")])
def test_placement_is_described(ranks: list[int], text: str) -> None:
    machines = [machine for machine, count in enumerate(ranks) for _ in range(count)]
    places = [Placement(rank, len(machines), machine) for rank, machine in enumerate(machines)]
    assert Job(places[0], places).describe() == text


@pytest.mark.parametrize("dtype", EXACT_UP_TO, ids=str)
@pytest.mark.parametrize(("op", "world"), [("sum", 2), ("sum", 30), ("avg", 3), ("min", 3), ("max", 3)])
def test_pattern_knows_the_result_and_sees_one_wrong_element(dtype: torch.dtype, op: str, world: int) -> None:
    pattern = Pattern(dtype, world, op)
    everyone = torch.empty(world, 60_007, dtype=torch.float64)
    mine = torch.empty(60_007, dtype=dtype)
    for rank in range(world):
        pattern.fill(mine, rank, call=5)
        everyone[rank] = mine
    total = everyone.sum(0)
    of_op = {"sum": total, "avg": total / world, "min": everyone.amin(0), "max": everyone.amax(0)}
    result = of_op[op].to(dtype)  # exact sums; to integers it rounds down
    assert pattern.wrong(result, call=5) == 0
    result[60_000] += 1
    assert pattern.wrong(result, call=5) == 1
    assert pattern.wrong(result, call=6) > 0
    for rank in range(world):
        pattern.fill_copy(mine, rank, call=5)
        assert pattern.wrong_copy(mine, rank, call=5) == 0
        assert all(pattern.wrong_copy(mine, other, call=5) == len(mine) for other in range(world) if other != rank)
    mine[60_000] += 1
    assert pattern.wrong_copy(mine, world - 1, call=5) == 1


def test_pattern_refuses_a_world_whose_sums_would_round() -> None:
    with pytest.raises(ValueError, match="300 ranks are not exact in"):
        Pattern(torch.bfloat16, 300, "sum")
