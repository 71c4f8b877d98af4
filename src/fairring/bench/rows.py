"""A row of a collective's benchmark: one contestant's result for one size, as figures. No torch, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairring.bench.arithmetic import (
    beyond_floor,
    median_deviation,
    of_limit,
    percentile,
)
from fairring.bench.collectives import ALL_REDUCE, COLLECTIVES, Collective
from fairring.bench.contestants import FLOOR, STOCK
from fairring.by_level import level_names


@dataclass(frozen=True)
class Cluster:
    """The limits to compare the figures with. link: bytes/s of the slowest machine, one way; None on one machine.

    Across sites only the link between them counts: sites are set because it is the slower one. copy_seconds: by number
    of bytes in one go, on one machine, with its ranks copying all at once.
    """

    machines: Sequence[int]  # their ranks
    link: float | None
    copy_seconds: Mapping[int, float] = field(default_factory=dict)
    sites: Sequence[int] = ()  # their ranks
    site_link: float | None = None  # of the slowest site, one way


@dataclass
class Sample:
    """The measurements of one contestant on one workload, before any arithmetic.

    seconds: of the slowest rank, one per timed round. cpu_seconds: of all ranks. wrong: elements over all rounds and
    ranks; None: not checked. traffic: of the busiest rank in one go, by level; None if nothing counts it. peak_bytes,
    shared_bytes: the most that any rank needed since the contestant was made.
    """

    name: str
    size_bytes: int = 0
    in_flight: int = 1
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    wrong: int | None = None
    traffic: Mapping[int, Mapping[str, int]] | None = None
    peak_bytes: int | None = None
    shared_bytes: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None  # the planner's choice and prediction
    sums: bool = True  # else its bandwidth is meaningless
    form: str = ""  # of the tensors, where contestants have several


@dataclass(frozen=True)
class Times:
    """The part of a row that all benchmarks have, in seconds."""

    backend: str
    seconds: list[float]  # of the slowest rank, one per round
    median: float
    deviation: float
    p99: float


def times(backend: str, seconds: list[float]) -> dict[str, Any]:
    """The fields of Times."""
    figures = {
        "median": percentile(seconds, 50),
        "deviation": median_deviation(seconds),
        "p99": percentile(seconds, 99),
    }
    return {"backend": backend, "seconds": seconds, **figures}


@dataclass(frozen=True)
class Row(Times):
    """Sizes in bytes, bandwidths in bytes/s. None: not defined here, or not measured."""

    settings: Mapping[str, str]
    size_bytes: int
    in_flight: int
    algorithm_bandwidth: float | None
    bus_bandwidth: float | None
    of_limit: float | None
    vs_stock: float | None
    vs_stock_beyond_floor: float | None
    wrong: int | None
    cpu_seconds_per_gb: float | None
    levels: dict[str, Mapping[str, int]] | None  # by name: messages, bytes and sends of the busiest rank
    peak_bytes: int | None
    shared_bytes: int | None
    plan: Mapping[str, Any] | None


def make_rows(
    samples: Sequence[Sample], cluster: Cluster, collective: Collective = COLLECTIVES[ALL_REDUCE]
) -> list[Row]:
    """The rows of one size. With several calls in flight the bandwidths are those of all of them together."""
    medians = {sample.name: percentile(sample.seconds, 50) for sample in samples}
    return [_row(sample, medians, cluster, collective) for sample in samples]


def _row(sample: Sample, medians: Mapping[str, float], cluster: Cluster, collective: Collective) -> Row:
    together, median = sample.size_bytes * sample.in_flight, medians[sample.name]
    ranks = sum(cluster.machines)
    names = level_names(len(cluster.sites))
    bandwidth = together / median if together and sample.sums else None
    return Row(
        **times(sample.name, sample.seconds),
        settings=sample.settings,
        size_bytes=sample.size_bytes,
        in_flight=sample.in_flight,
        algorithm_bandwidth=bandwidth,
        bus_bandwidth=bandwidth and bandwidth * collective.bus_factor(ranks),
        of_limit=bandwidth and _of_limit(together, median, cluster, collective),
        vs_stock=medians[STOCK] / median if STOCK in medians and sample.sums else None,
        vs_stock_beyond_floor=_beyond_floor(median, medians) if sample.sums else None,
        wrong=sample.wrong,
        cpu_seconds_per_gb=percentile(sample.cpu_seconds, 50) / (together * ranks / 1e9) if together else None,
        levels=None if sample.traffic is None else {names[level]: moved for level, moved in sample.traffic.items()},
        peak_bytes=sample.peak_bytes,
        shared_bytes=sample.shared_bytes,
        plan=sample.plan,
    )


def _of_limit(together: int, median: float, cluster: Cluster, collective: Collective) -> float | None:
    across = len(cluster.sites) > 1
    ranks, link = (cluster.sites, cluster.site_link) if across else (cluster.machines, cluster.link)
    if link:
        return of_limit(together * collective.link_share(ranks), median, link)
    copying = cluster.copy_seconds.get(together)
    return copying / median if copying else None


def _beyond_floor(median: float, medians: Mapping[str, float]) -> float | None:
    if STOCK not in medians or FLOOR not in medians:
        return None
    stock, mine = beyond_floor(medians[STOCK], medians[FLOOR]), beyond_floor(median, medians[FLOOR])
    return stock / mine if stock and mine else None
