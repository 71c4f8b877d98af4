"""The cases that one boot serves, in this order; what each does stands in bodies.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

RDMA = {"FAIRRING_TRANSPORT": "tensorpipe:ibv"}
SLICE_BYTES, LARGE_BYTES = 64 << 10, 8 << 20
SMALL_SLICES = {"FAIRRING_SLICE_SIZE": "64KiB", "FAIRRING_TOTAL_MEMORY": "1MiB"}
RANKS = 2
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
    Case("auto", "in_flight", {}),
    Case("memlock", "first_error_without_memlock"),
    Case("check", "check", {}),
    Case("two sites", "two_sites", {"FAIRRING_TRANSPORT": "rail=tensorpipe:ibv,site=tcp"}, ranks=4, site_ranks=2),
    Case("killed", "until_the_peer_is_killed", killed=1),
    Case("auto without memlock", "sum_without_memlock", {}),
    Case("training over TCP", "training", {"FAIRRING_TRANSPORT": "tcp"}),
    Case("device down", "until_the_device_goes_down"),
]
OVER_RDMA = ["sizes and dtypes", "in flight", "training", "auto", "check", "two sites", "killed"]
