"""The rails over RDMA: one boot of virtual machines with soft-RoCE carries out all cases of rdma/cases.py.

VMS=1 in the environment is the quick variant: both ranks in one machine, where no wire shows what went over it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rdma import capture, image, machines
from rdma.cases import CASES, LARGE_BYTES, OUTAGE_SECONDS, OVER_RDMA, RANKS, SPEED, Case

pytestmark = [pytest.mark.rdma, pytest.mark.timeout(1200)]

REPOSITORY = Path(__file__).parents[2]
MACHINES = int(os.environ.get("VMS") or 2)
LIMIT_SECONDS = 900.0
TCP_SHARE = 0.05  # of the gradients' bytes: what the store, heartbeats and the handshakes may take
needs_a_wire = pytest.mark.skipif(MACHINES < 2, reason="one machine has no wire between its ranks")


@dataclass(frozen=True)
class Run:
    out: Path
    seconds: float

    def said(self, case: str, rank: int) -> str:
        return (self.out / f"{case}.{rank}.txt").read_text()

    def reports(self, case: str) -> list[dict[str, Any]]:
        return [json.loads((self.out / f"{case}.{machine}.json").read_text()) for machine in range(MACHINES)]

    def codes(self, case: str) -> list[int]:
        codes = {int(rank): code for report in self.reports(case) for rank, code in report["codes"].items()}
        return [codes[rank] for rank in sorted(codes)]

    def sent(self, case: str) -> int:
        """Packets of all devices."""
        return sum(report["counters"]["sent_pkts"] for report in self.reports(case))

    def was_played_again(self, case: str) -> bool:
        return any(report["again"] for report in self.reports(case))

    def speeds(self, case: str) -> dict[int, tuple[float, float, float]]:
        """By bytes, on rank 0: seconds of a call, processor seconds of its machine and of the process."""
        rows = [line.split()[1:] for line in self.said(case, 0).splitlines() if line.startswith("speed ")]
        return {int(row[0]): (float(row[1]), float(row[2]), float(row[3])) for row in rows}

    def wires(self) -> list[dict[str, capture.Traffic]]:
        return [capture.read(self.out / f"wire{wire}.pcap") for wire in range(2)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    try:
        made = image.prepare(REPOSITORY / "build" / "rdma")
    except image.UnavailableError as error:
        pytest.skip(f"no virtual machines here: {error}")
    out = tmp_path_factory.mktemp("rdma")
    run = Run(out, machines.run(made, MACHINES, out, LIMIT_SECONDS))
    yield run
    _print_summary(run)


def _print_summary(run: Run) -> None:
    wires = run.wires()
    print(f"\n{MACHINES} machine(s), {run.seconds:.0f} s from boot to end")
    print(f"{'case':26} {'packets':>8} {'RDMA frames':>12} {'their MB':>9} {'TCP MB':>7}")
    for case in CASES:
        seen = [wire.get(case.name, capture.Traffic()) for wire in wires]
        frames, written = (sum(getattr(one, name) for one in seen) for name in ("moved_frames", "moved_bytes"))
        tcp = sum(one.tcp_bytes for one in seen)
        again = "  played again" if run.was_played_again(case.name) else ""
        print(f"{case.name:26} {run.sent(case.name):8} {frames:12} {written / 1e6:9.2f} {tcp / 1e6:7.2f}{again}")
    print(f"{'':10} {'verbs':>12} {'':12} {'':12}   {'tensorpipe:ibv':>14}")
    print(f"{'bytes':>10} {'ms':>12} {'MB/s':>12} {'cpu s/GB':>12}   {'ms':>12} {'MB/s':>12} {'cpu s/GB':>12}")
    columns = [run.speeds(case) for case in ("speed", "speed by TensorPipe")]
    for size, _ in SPEED:
        cells = [
            f"{seconds * 1e3:12.2f} {size / seconds / 1e6:12.2f} {busy / size * 1e9:12.1f}"
            for seconds, busy, _ in (column[size] for column in columns)
        ]
        print(f"{size:10} {'   '.join(cells)}")


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_rank_comes_to_its_end(run: Run, case: Case) -> None:
    expected = [-9 if rank == case.killed else 0 for rank in range(case.ranks)]
    assert run.codes(case.name) == expected, "\n".join(run.said(case.name, rank) for rank in range(case.ranks))


@pytest.mark.parametrize("case", [case.name for case in CASES])
def test_no_case_is_played_again_but_where_a_device_had_to_repeat_itself(run: Run, case: str) -> None:
    repeated = sum(report["counters"]["completer_retry_err"] for report in run.reports(case))
    assert repeated > 0 or not run.was_played_again(case)


def test_one_case_at_most_is_played_again(run: Run) -> None:
    assert len([case.name for case in CASES if run.was_played_again(case.name)]) <= 1


def test_sums_of_all_dtypes_and_of_sizes_around_slices_and_shards_are_exact(run: Run) -> None:
    for rank in range(RANKS):
        assert " wrong 0\n" in run.said("sizes and dtypes", rank)


@pytest.mark.parametrize("case", ["in flight", "auto", "by TensorPipe", "smaller frames", "device up again"])
def test_sums_of_several_slices_in_flight_are_exact(run: Run, case: str) -> None:
    assert [run.said(case, rank).splitlines()[-1] for rank in range(RANKS)] == ["wrong 0"] * RANKS


def test_a_training_gives_the_bits_that_it_gives_over_tcp(run: Run) -> None:
    cases = ("training", "training over TCP", "break")
    (said,) = {run.said(case, rank).splitlines()[-1] for case in cases for rank in range(RANKS)}
    assert said.startswith("parameters ")


@pytest.mark.parametrize("case", OVER_RDMA)
def test_the_devices_count_packets(run: Run, case: str) -> None:
    assert run.sent(case) > 100


def test_no_device_counts_packets_where_tcp_was_chosen(run: Run) -> None:
    for case in ("memlock", "memlock by TensorPipe", "auto without memlock", "training over TCP"):
        assert run.sent(case) == 0, case


@needs_a_wire
def test_the_wire_shows_rdma_and_no_gradients_on_tcp(run: Run) -> None:
    wires = run.wires()
    for case in ("in flight", "auto"):
        written = wires[0][case].moved_bytes
        assert written > 2 * LARGE_BYTES, case  # 8 MB and 8 x 1 MiB, each way
        assert wires[1][case].moved_bytes == 0
        assert sum(wire[case].tcp_bytes for wire in wires) < TCP_SHARE * written, case
    assert sum(wire["training over TCP"].tcp_bytes for wire in wires) > 1_000_000  # so the measure sees gradients


def test_rdma_inside_of_sites_and_tcp_between_them_sum_exactly(run: Run) -> None:
    for rank in range(4):
        moved, wrong = run.said("two sites", rank).splitlines()[-2:]
        assert wrong == "wrong 0"
        assert all(int(count) >= 4 << 20 for count in moved.split()[1:]), "on both levels, half of 8 MiB or more"


@needs_a_wire
def test_what_goes_between_sites_is_tcp_and_no_rdma_leaves_one(run: Run) -> None:
    rdma, tcp = (wire["two sites"] for wire in run.wires())
    assert rdma.moved_bytes == tcp.moved_bytes == 0
    assert tcp.tcp_bytes > 2 * (8 << 20), "8 MiB each way"


def test_fairring_check_finds_the_devices_and_measures_the_rails_over_them(run: Run) -> None:
    said = run.said("check", 0)
    report = json.loads(said[said.index("{\n") :])
    assert report["transport"]["rail"] == "verbs"
    assert [level["level"] for level in report["levels"]] == ["rail"]
    assert report["levels"][0]["bytes_per_second"] > 0
    for rank in report["ranks"]:
        (device,) = rank["module"]["rdma"]
        assert (device["name"], device["interface"], device["obstacle"]) == ("rxe0", "eth0", "")
    # An emulated processor is slower than any network, and the check says so.
    links = [one["what"] for one in report["findings"] if not one["what"].startswith("rank")]
    assert [text for text in links if "longer than the predicted" not in text] == []


@pytest.mark.parametrize(("case", "transport"), [("memlock", "verbs"), ("memlock by TensorPipe", "tensorpipe:ibv")])
def test_a_rank_that_may_not_lock_memory_is_an_error_that_says_what_to_do(run: Run, case: str, transport: str) -> None:
    for rank in range(RANKS):
        for words in (f"FAIRRING_TRANSPORT={transport} can't be used", "rank 1 (", "8388608 B", "ulimit -l"):
            assert words in run.said(case, rank)


@needs_a_wire
def test_two_fabrics_are_an_error_that_names_both(run: Run) -> None:
    for rank in range(RANKS):
        for words in ("FAIRRING_TRANSPORT=verbs can't be used", "'RoCE 10.70.0.0/24'", "'RoCE 10.72.0.0/24'"):
            assert words in run.said("two fabrics", rank)


@needs_a_wire
def test_an_address_that_packets_do_not_reach_is_an_error_that_says_what_to_look_at(run: Run) -> None:
    for rank in range(RANKS):
        for words in ("RDMA to rank", "RoCE 10.70.0.0/24", "look at the peer's"):
            assert words in run.said("wrong address", rank)


@needs_a_wire
def test_auto_takes_tcp_and_says_why_where_packets_get_lost(run: Run) -> None:
    for rank in range(RANKS):
        said = run.said("auto with a wrong address", rank)
        assert "TCP between rank " in said
        assert "not RDMA: rank 0 (machine0) heard nothing of rank 1 (machine1) by RDMA for 5000 ms" in said
        assert f"sum {RANKS}.0" in said


@needs_a_wire
def test_an_outage_of_some_seconds_only_delays_a_call(run: Run) -> None:
    for rank in range(RANKS):
        (seconds,) = re.findall(r"after (.*) s: wrong 0\n", run.said("outage", rank))
        assert float(seconds) >= OUTAGE_SECONDS


@needs_a_wire
def test_an_outage_that_breaks_queue_pairs_only_delays_a_training(run: Run) -> None:
    broken = {
        case: sum(one["counters"]["retry_exceeded_err"] for one in run.reports(case)) for case in ("outage", "break")
    }
    assert broken["outage"] == 0
    assert broken["break"] > 0


def test_a_second_group_takes_tcp_where_the_first_was_promised_the_memory(run: Run) -> None:
    for rank in range(RANKS):
        assert run.said("memory for one group", rank).count(f"sum {RANKS}.0") == 2
    said = run.said("memory for one group", 0)
    assert "TCP between machines, not RDMA: rank 0 (" in said
    assert "B that are promised to its other groups" in said


def test_auto_takes_tcp_and_says_why_where_a_port_is_down(run: Run) -> None:
    said = run.said("auto without a port", 0)
    assert "TCP between machines, not RDMA: rank" in said
    assert "it is DOWN" in said
    assert f"sum {RANKS}.0" in said


def test_a_port_that_is_down_is_an_error_where_verbs_were_asked_for(run: Run) -> None:
    for rank in range(RANKS):
        for words in ("FAIRRING_TRANSPORT=verbs can't be used", "rank 1 (", "it is DOWN"):
            assert words in run.said("without a port", rank)


def test_auto_takes_tcp_and_says_why_where_a_rank_may_not_lock_memory(run: Run) -> None:
    assert "TCP between machines, not RDMA: rank 1 (" in run.said("auto without memlock", 0)
    for rank in range(RANKS):
        assert f"sum {RANKS}.0" in run.said("auto without memlock", rank)


def test_a_killed_peer_is_named(run: Run) -> None:
    assert "rank 1 (" in run.said("killed", 0)
    assert "died" in run.said("killed", 0)


@pytest.mark.parametrize("case", ["device down", "device down by TensorPipe"])
def test_a_device_that_goes_down_ends_the_call_with_an_error_on_all_ranks(run: Run, case: str) -> None:
    for rank in range(RANKS):
        said = run.said(case, rank)
        assert "rank " in said
        assert "no error" not in said
    assert "port error" in run.said("device down", 1)
