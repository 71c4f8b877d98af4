"""The order in which ranks launch calls of NCCL, as emulated devices write it down.

Ranks that share several communicators launch their calls on these in one order, as NCCL demands: with another, devices
may wait for each other.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path


def noted_in(folder: Path) -> dict[str, str]:
    """Variables for ranks whose launches are to be written down. On real devices nothing is."""
    return {"EMULATED_CUDA_LAUNCHES": str(folder)}


def launches(folder: Path) -> list[list[str]]:
    """The communicators that each rank has launched on, in order."""
    return [[line.split()[0] for line in file.read_text().splitlines()] for file in sorted(folder.iterdir())]


def differences(launched: list[list[str]]) -> list[str]:
    """For each two ranks whose orders differ: where they first do."""
    found = []
    for (one, first), (other, second) in combinations(enumerate(launched), 2):
        shared = set(first) & set(second)
        orders = [[name for name in order if name in shared] for order in (first, second)]
        if orders[0] == orders[1]:
            continue
        number = next((i for i, pair in enumerate(zip(*orders, strict=False)) if pair[0] != pair[1]), None)
        where = f"at launch {number}" if number is not None else f"in number: {list(map(len, orders))}"
        found.append(f"files {one} and {other} differ {where}")
    return found
