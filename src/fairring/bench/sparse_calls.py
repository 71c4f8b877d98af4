"""The calls of `fairring bench sparse`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from fairring.bench.contestants import STOCK
from fairring.bench.memory import Footprint
from fairring.bench.placement import Placement
from fairring.bench.race import Go, Levels, Racer, Runner
from fairring.bench.sparse_rows import Touched

SPARSE, DENSE = "sparse", "dense"
FORMS = (SPARSE, DENSE)
SPARE = 0.8  # at most this share of a host's free memory may be needed
STAGING_BYTES = 64 << 20  # about FAIRRING_TOTAL_MEMORY's default and the additional staging of small calls


@dataclass(frozen=True)
class Entrant:
    racer: Racer
    form: str

    @property
    def backend(self) -> str:
        return self.racer.contestant.name

    def needs(self, touched: Touched) -> int:
        """About the bytes on one rank, besides the memory that all entrants' goes share."""
        row_bytes = touched.width * touched.dtype.itemsize
        most, result = max(map(len, touched.of_rank)), len(touched.union)
        if self.form == DENSE:
            return touched.rows * row_bytes + STAGING_BYTES
        if self.racer.contestant.backend == STOCK:  # gathers every rank's rows, and adds them up one rank after another
            return (3 * len(touched.of_rank) * most + 2 * result) * row_bytes
        return 2 * (most + result) * row_bytes + STAGING_BYTES


@dataclass(frozen=True)
class Host:
    """One rank's view of the computer that it runs on, which the machines of an emulated cluster share."""

    name: str
    free_bytes: int

    @classmethod
    def here(cls) -> Host:
        free = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return cls(f"{os.uname().nodename} {boot}", int(free[1]) * 1024 if free else 0)


def obstacle(entrant: Entrant, touched: Touched) -> str | None:
    """The reason why its memory would not suffice; None: it does. Called by all ranks; the same answer on all."""
    hosts = [Host.here()] * dist.get_world_size()
    dist.all_gather_object(hosts, hosts[0])
    boots = [host.name.split()[1] for host in hosts]
    for boot in dict.fromkeys(boots):
        free = min(host.free_bytes for host in hosts if host.name.endswith(boot))
        needed = boots.count(boot) * entrant.needs(touched)
        if needed > SPARE * free:
            gib = 1 << 30
            return f"needs some {needed / gib:.1f} GiB on a host that has {free / gib:.1f} GiB free"
    return None


def runners(touched: Touched, entrants: Sequence[Entrant]) -> list[Runner]:
    """The runners share the dense table."""
    rows = touched.rows if any(entrant.form == DENSE for entrant in entrants) else 0
    dense = torch.zeros(rows, touched.width, dtype=touched.dtype)

    def prepare(entrant: Entrant, turn: int) -> Go:
        rank = dist.get_rank()
        if entrant.form == DENSE:
            touched.fill(dense, rank, turn)
        tensor = dense if entrant.form == DENSE else touched.sparse(rank, turn)
        return Go(partial(dist.all_reduce, tensor, group=entrant.racer.group), partial(touched.wrong, tensor, turn))

    return [Runner(entrant.racer, Footprint(), partial(prepare, entrant)) for entrant in entrants]


def busiest(traffic: list[Levels | None], places: list[Placement]) -> Levels | None:
    """Messages and bytes by level, of the busiest rank, machine, site; traffic: of each rank."""
    counted = [one for one in traffic if one is not None]
    if len(counted) < len(traffic):
        return None
    sites = len({place.site for place in places}) > 1
    whose: dict[int, list[Any]] = {0: [p.rank for p in places], 1: [p.machine for p in places]}
    whose[2] = [p.site for p in places] if sites else whose[1]
    found: dict[int, dict[str, int]] = {}
    for level in sorted({level for one in counted for level in one}):
        sums: dict[Any, dict[str, int]] = {}
        for member, one in zip(whose[level], counted, strict=True):
            counts = sums.setdefault(member, {"messages": 0, "bytes": 0})
            for name in counts:
                counts[name] += one.get(level, {}).get(name, 0)
        found[level] = max(sums.values(), key=lambda counts: counts["bytes"])
    return found
