"""From samples to a row of figures: one contestant's result in one heat. Pure, no torch, no network.

A row is what the file of --json holds: sizes in bytes, times in seconds, bandwidths in bytes/s. None: not defined here,
or not measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairring.bench.contestants import ALONE, STOCK, Contestant

Levels = Mapping[int, Mapping[str, int]]  # messages, their bytes, and the sends that carried them
Row = dict[str, Any]


@dataclass
class Sample:
    """The measurements of one contestant in one heat, before any arithmetic.

    seconds: of the slowest rank, one per timed round. host_seconds: until its calls returned. cpu_seconds: of all
    ranks. wrong: elements over all rounds and ranks; None: not checked. traffic: of the busiest in one go, by level;
    None if nothing counts it. peak_bytes, shared_bytes, device_peak_bytes: the most that any rank needed since the
    contestant was made.
    """

    contestant: Contestant
    form: str = ""  # of the tensors, where contestants have several
    seconds: list[float] = field(default_factory=list)
    host_seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    wrong: int | None = None
    traffic: Levels | None = None
    peak_bytes: int = 0
    shared_bytes: int = 0
    device_peak_bytes: int = 0

    @property
    def median(self) -> float:
        return percentile(self.seconds, 50)


@dataclass(frozen=True)
class Amounts:
    """The amounts that one go of a heat moves. size_bytes: of each of in_flight calls; 0: it has no bandwidth.

    least: by level (rail, site), bytes that the busiest machine or site has to move in its busier direction.
    bus_factor: bus bandwidth / algorithm bandwidth. own: figures that all rows of the heat have.
    """

    size_bytes: int = 0
    in_flight: int = 1
    bus_factor: float | None = None
    least: Mapping[str, float] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def together(self) -> int:
        return self.size_bytes * self.in_flight


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that at least this percentage of all samples do not exceed (nearest rank, no interpolation).

    So the 99th of fewer than 100 samples is the largest. Raises ValueError without samples or outside of (0, 100].
    """
    if not samples or not 0 < percent <= 100:
        raise ValueError(f"percentile {percent} of {len(samples)} samples: give samples and a percentage in (0, 100]")
    return sorted(samples)[math.ceil(percent / 100 * len(samples)) - 1]


def median_deviation(samples: Sequence[float]) -> float:
    """How noisy the samples are: the median distance from their median (MAD), which single outliers don't move.

    Raises ValueError without samples.
    """
    middle = percentile(samples, 50)
    return statistics.median(abs(sample - middle) for sample in samples)


def make_rows(
    samples: Sequence[Sample], amounts: Amounts, limit: float | None, world: int, names: Sequence[str]
) -> list[Row]:
    """The rows of one heat. limit: the least seconds of a go; None: unknown. names: of levels, by number."""
    return [
        {
            "backend": one.contestant.name,
            "form": one.form,
            "settings": one.contestant.settings,
            **amounts.own,
            "size_bytes": amounts.size_bytes,
            "in_flight": amounts.in_flight,
            "seconds": one.seconds,
            "median": one.median,
            "deviation": median_deviation(one.seconds),
            "p99": percentile(one.seconds, 99),
            "host": percentile(one.host_seconds, 50) if one.host_seconds else None,
            **_bandwidths(one, amounts, limit),
            **_beside(one, samples),
            "wrong": one.wrong,
            "cpu_seconds": percentile(one.cpu_seconds, 50),
            "cpu_seconds_per_gb": _per_gb(percentile(one.cpu_seconds, 50), amounts.together * world),
            "levels": one.traffic and {names[level]: moved for level, moved in one.traffic.items()},
            "least_bytes": amounts.least,
            "peak_bytes": one.peak_bytes,
            "shared_bytes": one.shared_bytes,
            "device_peak_bytes": one.device_peak_bytes or None,
        }
        for one in samples
    ]


def least_seconds(least: Mapping[str, float], speeds: Mapping[str, float | None]) -> float | None:
    """The time of the least bytes at the speed of the level that needs longest. speeds: bytes/s by level, if known."""
    times = [size / speed for level, size in least.items() if size and (speed := speeds.get(level))]
    return max(times, default=None)


def _per_gb(seconds: float, size_bytes: int) -> float | None:
    return seconds / (size_bytes / 1e9) if size_bytes else None


def _bandwidths(one: Sample, amounts: Amounts, limit: float | None) -> Row:
    bandwidth = amounts.together / one.median if amounts.together and one.contestant.sums else None
    return {
        "algorithm_bandwidth": bandwidth,
        "bus_bandwidth": bandwidth and amounts.bus_factor and bandwidth * amounts.bus_factor,
        "of_limit": limit / one.median if limit and one.contestant.sums else None,
    }


def _beside(one: Sample, samples: Sequence[Sample]) -> Row:
    """The factors to other samples of the same heat, and the time beyond a step that exchanges nothing.

    exchange: the median of the rounds' differences to that.
    """
    stock = next((one for one in samples if one.contestant.name in STOCK.values()), None)
    mine, stocks = _exchange(one, samples), _exchange(stock, samples)
    exchange = percentile(mine, 50) if mine else None
    other = next((other for other in samples if other.contestant == one.contestant and other.form != one.form), None)
    return {
        "vs_stock": stock.median / one.median if stock and one.contestant.sums else None,
        "vs_other_form": other.median / one.median if other else None,
        "exchange": exchange,
        "exchange_deviation": median_deviation(mine) if mine else None,
        "exchange_vs_stock": percentile(stocks, 50) / exchange if stocks and exchange and exchange > 0 else None,
    }


def _named(samples: Sequence[Sample], name: str) -> Sample | None:
    return next((one for one in samples if one.contestant.name == name), None)


def _exchange(one: Sample | None, samples: Sequence[Sample]) -> list[float]:
    """By round, the time beyond that of the step that exchanges nothing; empty: there is none."""
    alone = _named(samples, ALONE)
    if one is None or alone is None or one is alone:
        return []
    return [with_it - without for with_it, without in zip(one.seconds, alone.seconds, strict=True)]
