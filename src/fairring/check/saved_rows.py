"""Measurements as the planner's cost rows: the inverse of docs/algorithms.md's formulas for a single level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairring.cost_rows import Row

SMALL_BYTES, LARGE_BYTES = 4, 16 << 20  # of the calls that are measured
LEAST_LATENCY = 1e-6  # seconds; less is noise


@dataclass(frozen=True)
class Measured:
    """The measurements of one level. ranks: those of its largest group."""

    level: str
    ranks: int
    latency_seconds: float  # of an all-reduce of SMALL_BYTES
    seconds: float  # of one of LARGE_BYTES
    bytes_per_second: float  # of one rank, each way


def rows(measured: Sequence[Measured], built_in: Sequence[Row]) -> list[Row]:
    """By level; that of sites only where it was measured. Else what was not measured stays: a message's cost and the
    speed of sums always.
    """
    found = {one.level: one for one in measured}
    machine = _machine(found["machine"], built_in[0]) if "machine" in found else built_in[0]
    rail = _network(found["rail"], built_in[1], built_in[0]) if "rail" in found else built_in[1]
    return [machine, rail, *([_network(found["site"], built_in[2], built_in[0])] if "site" in found else [])]


def _machine(one: Measured, built_in: Row) -> Row:
    """Two steps, each with all bytes."""
    _, per_message, _, summed = built_in
    latency = one.latency_seconds / 2 - per_message * (one.ranks - 1)
    return _row(latency, per_message, 2 * LARGE_BYTES, one, summed)


def _network(one: Measured, built_in: Row, machine: Row) -> Row:
    """A small call takes one step here and two, without peers, in the machine; a large one two here."""
    _, per_message, _, summed = built_in
    latency = one.latency_seconds - 2 * machine[0] - per_message * (one.ranks - 1)
    return _row(latency, per_message, 2 * LARGE_BYTES * (one.ranks - 1) / one.ranks, one, summed)


def _row(latency: float, per_message: float, moved: float, one: Measured, summed: float) -> Row:
    spent = max(one.seconds - one.latency_seconds, LEAST_LATENCY)
    summing = min(LARGE_BYTES / summed, spent / 2)
    return (max(latency, LEAST_LATENCY), per_message, moved / (spent - summing), summed)
