"""From sizes and seconds to the printed figures. Pure functions, no torch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def of_limit(link_bytes: float, seconds: float, link: float) -> float:
    """The used share of the network's speed: time at the link's measured speed / time taken.

    link_bytes: that cross the busiest machine's network in its busier direction. link: bytes/s of the slowest machine
    in one direction, both directions being busy. It can exceed 1 by the noise of the two measurements. Raises
    ValueError if link is not positive.
    """
    if not link > 0:
        raise ValueError(f"the link's speed is {link} bytes/s; it must be positive")
    return link_bytes / link / seconds


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


def beyond_floor(seconds: float, floor: float) -> float | None:
    """The time of a call beyond c10d's own part, which the fake backend shows; None if noise hides it."""
    return seconds - floor if seconds > floor else None
