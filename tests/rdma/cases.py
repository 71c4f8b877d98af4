"""The cases that one boot serves, in this order; what each does stands in bodies.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

RDMA = {"FAIRRING_TRANSPORT": "verbs"}
TENSORPIPE = {"FAIRRING_TRANSPORT": "tensorpipe:ibv"}
SLICE_BYTES, LARGE_BYTES = 64 << 10, 8 << 20
SMALL_SLICES = {"FAIRRING_SLICE_SIZE": "64KiB", "FAIRRING_TOTAL_MEMORY": "1MiB"}
RANKS = 2
OUTAGE_SECONDS = 3.0  # shorter than a queue pair's retries
BREAK_SECONDS = 9.0  # longer
TIMEOUT = timedelta(seconds=30)  # of a group whose device goes down


@dataclass(frozen=True)
class Case:
    """One group of processes; body: a function of bodies.py."""

    name: str
    body: str
    variables: dict[str, str] = field(default_factory=lambda: RDMA)
    killed: int | None = None  # this rank kills itself
    ranks: int = RANKS
    site_ranks: int = 0  # of each site; 0: there is one


CASES = [
    Case("sizes and dtypes", "sizes_and_dtypes", RDMA | SMALL_SLICES),
    Case("in flight", "in_flight"),
    Case("training", "training"),
    Case("by TensorPipe", "in_flight", TENSORPIPE),
    Case("speed", "speed"),
    Case("speed by TensorPipe", "speed", TENSORPIPE),
    Case("auto", "in_flight", {}),
    Case("memlock", "first_error_without_memlock"),
    Case("memlock by TensorPipe", "first_error_without_memlock", TENSORPIPE),
    Case("smaller frames", "in_flight_with_smaller_frames"),
    Case("two fabrics", "first_error_on_another_fabric"),
    Case("wrong address", "first_error_where_packets_get_lost"),
    Case("auto with a wrong address", "sum_where_packets_get_lost", {}),
    Case("outage", "sum_across_an_outage"),
    Case("break", "training_across_a_break"),
    Case("memory for one group", "sums_of_two_groups_with_memory_for_one", {}),
    Case("without a port", "first_error_without_a_port"),
    Case("auto without a port", "sum_without_a_port", {}),
    Case("check", "check", {}),
    Case("two sites", "two_sites", {"FAIRRING_TRANSPORT": "rail=verbs,site=tcp"}, ranks=4, site_ranks=2),
    Case("killed", "until_the_peer_is_killed", killed=1),
    Case("auto without memlock", "sum_without_memlock", {}),
    Case("training over TCP", "training", {"FAIRRING_TRANSPORT": "tcp"}),
    Case("device down", "until_the_device_goes_down"),
    Case("device up again", "in_flight"),
    Case("device down by TensorPipe", "until_the_device_goes_down", TENSORPIPE),
]
OVER_RDMA = [
    *("sizes and dtypes", "in flight", "training", "by TensorPipe", "speed", "speed by TensorPipe", "auto", "check"),
    *("memory for one group", "outage", "break"),
    *("smaller frames", "two sites", "killed", "device up again"),
]
# Bytes of a tensor, and how many calls are timed.
SPEED = [(4, 40), (4 << 10, 40), (48_000, 30), (1 << 20, 10), (25 << 20, 3)]
